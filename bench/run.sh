#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make bench` measures after the build: every micro-benchmark, communication and checkpoints, tokenizers beside
# tiktoken's and Hugging Face's, then whole training steps beside PyTorch.
set -eu
cd "$(dirname "$0")/.."

for program in build/bench/bench_*; do
    if [ -x "$program" ] && [ -f "$program" ]; then
        echo "== $program"
        "$program" --benchmark_min_time=0.02
    fi
done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_reachable=weighted # Open MPI 5 asks routes, of which this machine's own address may have none
start="$(tools/mpirun_command.sh build) -n"
echo "== build/bench/mpi_overlap on 2 ranks"
$start 2 build/bench/mpi_overlap
echo "== build/bench/mpi_collectives on 2 ranks"
$start 2 build/bench/mpi_collectives
for ranks in 1 2 4; do
    echo "== build/bench/mpi_checkpoint on $ranks ranks"
    $start $ranks build/bench/mpi_checkpoint
done
echo "== tokenizers"
python3 bench/compare_tokenizers.py
echo "== training steps"
exec python3 bench/compare_torch.py
