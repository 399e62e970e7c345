#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make bench` runs this after the build. It measures every micro-benchmark, communication, checkpoints, tokenizers
# (compared with those of tiktoken and Hugging Face), products of experts (compared with plain ones), and then whole
# training steps (compared with PyTorch, and of Qwen 3 with Llama).
set -eu
cd "$(dirname "$0")/.."

for program in build/bench/bench_*; do
    if [ -x "$program" ] && [ -f "$program" ]; then
        echo "== $program"
        case $program in
            *_initial_values | *_pieces) "$program" ;;
            *) "$program" --benchmark_min_time=0.02 --benchmark_filter=-^experts ;;
        esac
    fi
done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_reachable=weighted # otherwise Open MPI 5 asks for a route to its own address; there may be none
start="$(tools/mpirun_command.sh build) -n"
echo "== build/bench/mpi_overlap on 2 ranks"
$start 2 build/bench/mpi_overlap
echo "== build/bench/mpi_experts on 2 ranks"
$start 2 build/bench/mpi_experts
echo "== build/bench/mpi_pairs on 4 ranks"
OMP_NUM_THREADS=1 $start 4 build/bench/mpi_pairs || true # it has printed that its goal is not reached
echo "== build/bench/mpi_collectives on 2 ranks"
$start 2 build/bench/mpi_collectives
for ranks in 1 2 4; do
    echo "== build/bench/mpi_checkpoint on $ranks ranks"
    $start $ranks build/bench/mpi_checkpoint
done
echo "== tokenizers"
python3 bench/compare_tokenizers.py
echo "== products of experts"
python3 bench/grouped.py
echo "== training steps"
python3 bench/compare_torch.py
python3 bench/compare_qwen.py
exec python3 bench/compare_moe.py
