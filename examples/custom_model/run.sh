#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model family outside src: run.sh [FOLDER [COEUS]]. Builds the program of this folder against the installed library,
# trains on 2 ranks and resumes in another mesh. Everything is written into FOLDER (./custom_model). STEPS: 40.
# COEUS: an installed program (PREFIX/bin/coeus), or one in its build folder, whose library is installed into
# FOLDER/prefix first.
set -eu
. "$(dirname "$0")/../common.sh"
steps=${STEPS:-40}

build=$(dirname "$coeus")
prefix=$(dirname "$build")
if [ -f "$build/CMakeCache.txt" ]; then
    prefix=$PWD/prefix
    say "the library is installed into $prefix"
    with_log install.log cmake --install "$build" --prefix "$prefix"
fi

say "the program is built against it"
with_log build.log cmake -S "$here" -B build -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release
with_log build.log cmake --build build
primer=$PWD/build/primer

[ -f stories.jsonl ] || "$here/../stories.sh" 2000 >stories.jsonl
[ -d tokenizer ] || with_log tokenizer.log "$primer" tokenizer stories.jsonl --vocab_size 384 --output tokenizer

say "training on 2 ranks, which divide the weights (FSDP)"
with_log fsdp.log $start -n 2 "$primer" train "$here/primer.toml" "--training.steps=$((steps / 2))"
progress fsdp.log

say "resuming on 2 ranks, which divide each layer (tensor parallelism)"
with_log tp.log $start -n 2 "$primer" train "$here/primer.toml" "--training.steps=$steps" \
    --parallelism.tensor_parallel_degree=2 --training.local_batch_size=8
progress tp.log

say "what it writes"
"$primer" generate --checkpoint outputs --prompt "A small fox" --length 30 --temperature 0
echo
