#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs all tests that need a GPU, on one GPU, in less than 8 minutes: run.sh [FOLDER [PART ...]]. FOLDER is a build
# folder (default build-cuda) or an unpacked bundle, in which this script is called gpu-tests.sh. Each PART is one of
# those in the second half of this script; without one, all parts run. The script prints how many cases of each part
# passed and failed, and at the end 'N passed, N failed'. It writes gpu-tests/gpu-tests.json into OUT (default FOLDER).
# The parts that need reference files (COEUS_SHARED) or compute-sanitizer are left out if these are missing. A part
# fails if its test program is missing or no time is left for it (COEUS_GPU_SECONDS). If the script is told to end
# (SIGTERM), it reports what there is.
# The part nccl-shared runs only if it is named: run.sh FOLDER nccl-shared, in less than 590 seconds. Ranks share the
# GPU and exchange tensors through an NCCL of 2.30 or newer, which COEUS_NCCL names. At the end it prints a line for
# each of the seven things that it shows (doc/nccl.md), also for those that were cut short.
set -u
here=$(CDPATH='' cd "$(dirname "$0")" && pwd)
own=build-cuda beside=$here/../../..
[ ! -x "$here/run" ] || { own=$here beside=$here/..; }
folder=$(CDPATH='' cd "${1:-$own}" && pwd) || exit 2
[ $# = 0 ] || shift
wanted=${*:-all}
out=${OUT:-$folder}/gpu-tests
mkdir -p "$out" || exit 2

# a bundle starts its programs, including mpirun, with its own libraries
programs=$folder/tests
[ ! -x "$folder/run" ] || { programs=$folder/bin PATH=$folder:$PATH; }
export COEUS_TEST_PROGRAM="$folder/coeus" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_mpi_yield_when_idle=1 OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"

card=unknown driver=unknown
if command -v nvidia-smi >/dev/null; then
    card=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
    driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
fi
date=$(date -u +%Y-%m-%dT%H:%M:%SZ)
echo "$date, card: $card, driver: $driver, logs: $out"

# all parts except the one with NCCL use one GPU
all_gpus=${CUDA_VISIBLE_DEVICES-}
gpus=$(nvidia-smi --list-gpus 2>/dev/null | wc -l)
[ -z "$all_gpus" ] || gpus=$(echo "$all_gpus" | tr ',' '\n' | grep -c .)
export CUDA_VISIBLE_DEVICES="${all_gpus%%,*}"
[ -n "$CUDA_VISIBLE_DEVICES" ] || CUDA_VISIBLE_DEVICES=0

passed=0 failed=0 parts=
usual=470
[ "$wanted" != nccl-shared ] || usual=560
seconds=${COEUS_GPU_SECONDS:-$usual}
end=$(($(date +%s) + seconds))

# Prints the last line of each number that the tests of ranks on one GPU have shown, by number and part.
shown() {
    for name in $shared_parts; do
        [ ! -f "$out/$name.log" ] ||
            awk '$1 == "shown" { sub(/\r$/, ""); number = $2; sub(/^shown [0-9]+ /, ""); last[number] = $0 }
                END { for (number in last) print number, last[number] }' "$out/$name.log"
    done | sort -s -n -k 1,1 >"$out/nccl-shared.txt"
    for number in 1 2 3 4 5 6 7; do
        grep "^$number " "$out/nccl-shared.txt" || echo "$number not shown"
    done
}

finish() {
    trap '' TERM INT
    [ -z "$shared_parts" ] || shown
    printf '{"date": "%s", "card": "%s", "driver": "%s", "parts": [%s], "passed": %d, "failed": %d}\n' \
        "$date" "$card" "$driver" "$parts" $passed $failed >"$out/gpu-tests.json"
    echo "$passed passed, $failed failed"
    [ $failed = 0 ] || exit 1
    exit 0
}

cut_short() {
    [ -z "$child" ] || kill "$child" 2>/dev/null
    note "$name" 0 1 $(($(date +%s) - begin)) "the script was told to end"
    finish
}
child='' shared_parts='' name=start begin=$(date +%s)
trap cut_short TERM INT

is_wanted() { case " $wanted " in *" $1 "* | " all ") ;; *) return 1 ;; esac }

note() { # note PART PASSED FAILED SECONDS "reason why it failed or was left out"
    passed=$((passed + $2)) failed=$((failed + $3))
    printf '%-10s %3s passed, %s failed, %4s s%s\n' "$1" "$2" "$3" "$4" "${5:+   $5}"
    parts="$parts${parts:+, }{\"name\": \"$1\", \"passed\": $2, \"failed\": $3, \"seconds\": $4, \"note\": \"$5\"}"
}

leave_out() { ! is_wanted "$1" || note "$1" 0 0 0 "left out: $2"; } # leave_out PART why

part() { # part NAME SECONDS "command that starts it" PROGRAM [ARGUMENT ...]: runs cases of a Catch2 program
    name=$1 limit=$2 starter=$3 program=$4
    shift 4
    [ "$seconds" -le $usual ] || limit=$((limit * seconds / usual)) # a longer total time is given for a slower machine
    is_wanted "$name" || return 0
    begin=$(date +%s)
    [ "$limit" -le $((end - begin)) ] || limit=$((end - begin))
    if [ ! -x "$programs/$program" ]; then note "$name" 0 1 0 "there is no $program"; return; fi
    if [ "$limit" -le 0 ]; then note "$name" 0 1 0 "no time was left"; return; fi
    if [ -x "$folder/run" ]; then set -- "$folder/run" "$program" "$@"; else set -- "$programs/$program" "$@"; fi
    # shellcheck disable=SC2086 # the starter is words
    timeout -k 5 "$limit" $starter "$@" >"$out/$name.log" 2>&1 </dev/null &
    child=$!
    wait $child 2>/dev/null # the shell names the signal that ended it
    code=$? child=
    # Open MPI gives its ranks a terminal, so Catch2 prints colours, and its versions 2 and 3 turn them off by different
    # options: they are removed here
    sed -i "s/$(printf '\033')\\[[0-9;]*m//g" "$out/$name.log"
    if grep -q 'Device not supported' "$out/$name.log"; then # compute-sanitizer on some virtual machines
        leave_out "$name" "compute-sanitizer does not support this device"
        return
    fi
    count() { sed -n "s/$1/\\1/p" "$out/$name.log" | head -n 1; }
    good=$(count '^All tests passed (.* in \([0-9]*\) test case.*') bad=0
    if [ -z "$good" ]; then
        good=$(count '^test cases:.*| *\([0-9]*\) passed.*') bad=$(count '^test cases:.*| *\([0-9]*\) failed.*')
    fi
    if [ $code = 77 ]; then # see tests/support/skip.hpp: every case was skipped
        leave_out "$name" "$(count '^skipped: \(.*\)' | sed "s/[\"\\\\]/'/g")"
        return
    fi
    # no case ran, or the program failed after its cases had passed
    if [ $code != 0 ] || [ -z "$good$bad" ]; then [ "${bad:-0}" != 0 ] || bad=1; fi
    why=
    skipped=$(grep -c '^skipped: ' "$out/$name.log")
    if [ "$skipped" != 0 ] && [ "${good:-0}" -ge "$skipped" ]; then good=$((good - skipped)) why="$skipped skipped"; fi
    [ "${bad:-0}" = 0 ] || why="${why:+$why, }see $name.log"
    [ $code != 124 ] || why="took longer than $limit s, $why"
    note "$name" "${good:-0}" "${bad:-0}" $(($(date +%s) - begin)) "$why"
}

part kernels 150 "" test_gpu "GPU kernels*"
part device 30 "" test_gpu "a GPU*"
part training 60 "" test_gpu "training on a GPU*"
part others 60 "" test_gpu '~"GPU kernels*"~"a GPU*"~"training on a GPU*"' # offloading
mpirun="mpirun --oversubscribe --bind-to none" # a bundle contains Open MPI
if [ -f "$folder/CMakeCache.txt" ]; then mpirun=$("$here/../../tools/mpirun_command.sh" "$folder"); fi
export COEUS_EVERY_CASE=1 # tests/support/part.hpp
for ranks in 2 4 8; do    # these share the GPU
    part meshes-$ranks 150 "$mpirun -n $ranks" mpi_gpu
done
part program 90 "" test_gpu_program "~[golden]~[.]"
if [ "$gpus" -ge 2 ]; then
    if [ -n "$all_gpus" ]; then export CUDA_VISIBLE_DEVICES="$all_gpus"; else unset CUDA_VISIBLE_DEVICES; fi
    part nccl 90 "" test_gpu_program "[nccl]"
    export CUDA_VISIBLE_DEVICES="${all_gpus%%,*}"
    [ -n "$CUDA_VISIBLE_DEVICES" ] || CUDA_VISIBLE_DEVICES=0
else
    leave_out nccl "there are not two GPUs"
fi
part steps-200 60 "" test_gpu_program "[long]"
[ -n "${COEUS_SHARED:-}" ] || export COEUS_SHARED="$beside/shared"
if [ -d "$COEUS_SHARED/golden/models" ]; then
    COEUS_REQUIRE_GOLDEN=1 part golden 90 "" test_gpu_program "[golden]"
else
    leave_out golden "no reference files in $COEUS_SHARED"
fi
sanitizer=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:/usr/local/cuda/bin command -v compute-sanitizer)
for tool in memcheck racecheck; do # only every seventh case, since these tools are slow
    if [ -n "$sanitizer" ]; then
        COEUS_GPU_CASES=few part $tool 120 "$sanitizer --tool $tool --target-processes all --error-exitcode 1" \
            test_gpu "GPU kernels agree*"
    else
        leave_out $tool "there is no compute-sanitizer"
    fi
done
case " $wanted " in
    *" nccl-shared "*)
        shared_parts="shared-2 shared-4 order-1 order-0 shared-run"
        wanted="$wanted $shared_parts"
        # few blocks and small buffers, so that the operations of all ranks have room
        export NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS="${NCCL_MAX_CTAS:-2}" NCCL_BUFFSIZE="${NCCL_BUFFSIZE:-1048576}"
        for name in $shared_parts; do rm -f "$out/$name.log"; done
        part shared-2 150 "$mpirun -n 2" mpi_gpu "[nccl-shared]"
        part shared-4 200 "$mpirun -n 4" mpi_gpu "[nccl-shared]"
        for implicit in 1 0; do
            export NCCL_LAUNCH_ORDER_IMPLICIT=$implicit
            part order-$implicit 45 "$mpirun -n 2" mpi_gpu "[nccl-shared-order]"
        done
        unset NCCL_LAUNCH_ORDER_IMPLICIT
        part shared-run 90 "" test_gpu_program "[nccl-shared]"
        ;;
esac
finish
