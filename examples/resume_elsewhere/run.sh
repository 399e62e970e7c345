#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Trains on 2 ranks, resumes on 1 and then on 4 ranks, each time in another mesh, and compares the result with a run
# that stays on one rank: run.sh [FOLDER [COEUS]]. Everything is written to FOLDER (default ./resume_elsewhere). STEPS
# is the number of steps (default 30).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
coeus=$(readlink -f "${2:-$here/../../build/coeus}")
steps=${STEPS:-30}
mkdir -p "${1:-resume_elsewhere}"
cd "${1:-resume_elsewhere}"
# allows root to run Open MPI; lets ranks that share a core wait without spinning
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1

start=$("$here"/../../tools/mpirun_command.sh "$(dirname "$coeus")")

say() { printf '\n== %s\n' "$*"; }

# train RUN RANKS STEPS OPTIONS...: trains, and prints the mesh, the first step and the losses
train() {
    run=$1 ranks=$2 last=$3
    shift 3
    $start -n "$ranks" "$coeus" train "$here/small.toml" "--job.dump_folder=$run" \
        "--training.steps=$last" "--lr_scheduler.total_steps=$steps" "$@" >"$run.log" 2>&1 ||
        { cat "$run.log" >&2; exit 1; }
    sed -n -E '/Mesh:|Resuming|from scratch|step:|Saved/{s/.* - info - //; s/ +memory:.*//; p}' "$run.log"
}

say "a text and a tokenizer"
cat "$here"/../../doc/*.md >text.txt
"$coeus" tokenizer text.txt --vocab_size 512 --output tokenizer 2>&1 | sed 's/.* - info - //'

say "the first run stays on one rank"
train stayed 1 "$steps"

say "the second run begins on 2 ranks, which divide the weights (FSDP)"
train moved 2 $((steps / 3)) --parallelism.data_parallel_shard_degree=2

say "its checkpoint does not depend on the ranks"
"$coeus" info "$(ls moved/checkpoint/step-*.h5 | tail -n 1)" | cut -c 1-100 | sed -n '1,5p;9,11p'

say "it continues on 1 rank"
train moved 1 $((steps * 2 / 3))

say "it continues on 4 ranks: 2 pipeline stages of 2 tensor-parallel ranks"
train moved 4 "$steps" --parallelism.pipeline_parallel_degree=2 --parallelism.tensor_parallel_degree=2 \
    --training.local_batch_size=8

say "how much do the two runs differ?"
last=$(basename "$(ls stayed/checkpoint/step-*.h5 | tail -n 1)")
# the exit code is not 0 if bits differ
"$coeus" info "stayed/checkpoint/$last" --diff "moved/checkpoint/$last" >diff.log || true
sed -n '1,6p' diff.log
"$coeus" report stayed moved >report.log
sed -n '/^Loss/,/^$/p' report.log
grep -A 4 -E '^ +stayed +moved$' report.log | sed -n '1,4p'
