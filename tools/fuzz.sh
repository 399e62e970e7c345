#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the fuzzers of a build folder, one per core at a time: fuzz.sh FOLDER SECONDS. Prints for each the number of
# inputs and of findings. Findings are written to FOLDER/findings/<fuzzer>-*; `FOLDER/tests/fuzz/<fuzzer> FILE` repeats
# one. Inputs that reached new code are kept in FOLDER/corpus for the next run.
set -eu
folder=$1
seconds=$2
export UBSAN_OPTIONS=print_stacktrace=1 LSAN_OPTIONS="suppressions=$PWD/tools/leaks.txt:print_suppressions=0"
[ ! -d /dev/shm ] || export TMPDIR=/dev/shm

if [ "${3:-}" = one ]; then
    name=$(basename "$4")
    corpus=$folder/corpus/$name log=$folder/findings/$name.log
    mkdir -p "$corpus" "$folder/findings"
    rm -f "$folder/findings/$name-"*
    largest=512 # MiB of one allocation
    # a zstd frame may name a window of 2 GiB (zstd --long=31), which is reserved before it is filled
    [ "$name" != fuzz_corpus ] || largest=2200
    "$4" "$corpus" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb="$largest" -max_len=20000 \
        -print_final_stats=1 -artifact_prefix="$folder/findings/$name-" >"$log" 2>&1 || true
    executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
    found=$(find "$folder/findings" -name "$name-*" | wc -l)
    echo "$name: ${executed:-0} executions in $seconds s, $found findings"
    [ "$found" = 0 ] && [ "${executed:-0}" -gt 0 ]
    exit
fi

find "$folder/tests/fuzz" -maxdepth 1 -name 'fuzz_*' -type f -perm -u+x | sort |
    xargs -P "$(getconf _NPROCESSORS_ONLN)" -n 1 "$0" "$folder" "$seconds" one ||
    { echo "findings and the logs of the fuzzers are in $folder/findings" >&2; exit 1; }
