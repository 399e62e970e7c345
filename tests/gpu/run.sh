#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# All that needs a GPU, on one: tests/gpu/run.sh [FOLDER with coeus and tests, default build-cuda]. Says what passed and
# what failed, and writes gpu-tests.json beside it: {"card": ..., "driver": ..., "parts": [{"name", "passed", "failed",
# "seconds"}], ...}. Where reference files are absent (COEUS_GOLDEN, default ../shared/golden) those parts are left out.
# About 5 minutes.
set -u
folder=${1:-build-cuda}
out=${OUT:-$folder}/gpu-tests
mkdir -p "$out"
export COEUS_TEST_PROGRAM="$(cd "$folder" && pwd)/coeus" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_mpi_yield_when_idle=1
command -v nvidia-smi >/dev/null && card=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)
echo "card: ${card:-unknown}"

passed=0 failed=0 parts=
part() { # part NAME SECONDS command...: a Catch2 program, whose cases are counted; else the command is one case
    name=$1 limit=$2
    shift 2
    start=$(date +%s)
    timeout "$limit" "$@" >"$out/$name.log" 2>&1 </dev/null
    code=$?
    seconds=$(($(date +%s) - start))
    good=$(sed -n 's/^All tests passed (.* in \([0-9]*\) test case.*/\1/p' "$out/$name.log" | head -n 1) bad=0
    if [ -z "$good" ]; then
        good=$(sed -n 's/^test cases:.*| *\([0-9]*\) passed.*/\1/p' "$out/$name.log" | head -n 1)
        bad=$(sed -n 's/^test cases:.*| *\([0-9]*\) failed.*/\1/p' "$out/$name.log" | head -n 1)
        good=${good:-0}
        [ -n "$bad" ] || bad=$([ $code = 0 ] && echo 0 || echo 1)
        [ "$good$bad$code" != 000 ] || good=1
    fi
    [ $code = 0 ] || [ "$bad" != 0 ] || bad=1
    passed=$((passed + good)) failed=$((failed + bad))
    printf '%-34s %3s passed, %s failed, %4s s%s\n' "$name" "$good" "$bad" "$seconds" \
        "$([ "$bad" = 0 ] || echo "   $out/$name.log")"
    parts="$parts${parts:+, }{\"name\": \"$name\", \"passed\": $good, \"failed\": $bad, \"seconds\": $seconds}"
}

tests=$folder/tests
part kernels 180 "$tests/test_gpu" "GPU kernels*"
part device 60 "$tests/test_gpu" "a GPU*"
part training 120 "$tests/test_gpu" "training on a GPU*"
for ranks in 2 4 8; do
    part "meshes-$ranks" 120 mpirun -n $ranks --oversubscribe --bind-to none "$tests/mpi_gpu"
done
part program 180 "$tests/test_gpu_program" "~[long]"
part long 180 "$tests/test_gpu_program" "[long]"
part golden 120 "$tests/test_program" "Ten steps from a Hugging Face folder have the golden figures"
if sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null); then
    for tool in memcheck racecheck; do
        COEUS_GPU_CASES=few part "$tool" 120 "$sanitizer" --tool $tool --error-exitcode 1 \
            "$tests/test_gpu" "GPU kernels agree*"
    done
else
    echo "compute-sanitizer is not there: memcheck and racecheck are left out"
fi

printf '{"card": "%s", "parts": [%s], "passed": %d, "failed": %d}\n' "${card:-}" "$parts" $passed $failed \
    >"$out/gpu-tests.json"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
