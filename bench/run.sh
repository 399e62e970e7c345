#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make bench` measures after the build: every micro-benchmark, tokenizers beside tiktoken's and Hugging Face's, then
# whole training steps beside PyTorch.
set -eu
cd "$(dirname "$0")/.."

for program in build/bench/bench_*; do
    if [ -x "$program" ] && [ -f "$program" ]; then
        echo "== $program"
        "$program" --benchmark_min_time=0.02
    fi
done
echo "== tokenizers"
python3 bench/compare_tokenizers.py
echo "== training steps"
exec python3 bench/compare_torch.py
