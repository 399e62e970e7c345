#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A pipeline schedule of your own: run.sh [FOLDER [COEUS]]. Compares it with 1F1B, trains with both, and shows the
# message about a wrong one. Everything is written into FOLDER (./custom_schedule). STEPS: 20.
set -eu
. "$(dirname "$0")/../common.sh"
steps=${STEPS:-20}

say "1F1B: two ranks, four micro-batches"
"$coeus" schedule --name 1F1B --pp 2 --microbatches 4 --svg 1f1b.svg --force

say "ours: backwards in halves, I (gradient of the input) and W (gradient of the weights), in another order"
cat "$here/zero_bubble.csv"
"$coeus" schedule --csv "$here/zero_bubble.csv" --svg zero_bubble.svg --force

[ -f stories.jsonl ] || "$here/../stories.sh" 2000 >stories.jsonl
[ -d tokenizer ] || with_log tokenizer.log "$coeus" tokenizer stories.jsonl --vocab_size 320 --output tokenizer

say "training with 1F1B"
with_log 1f1b.log $start -n 2 "$coeus" train "$here/pipeline.toml" "--training.steps=$steps" \
    --job.dump_folder=1f1b --parallelism.pipeline_parallel_schedule=1F1B
progress 1f1b.log

say "training with ours"
with_log ours.log $start -n 2 "$coeus" train "$here/pipeline.toml" "--training.steps=$steps" \
    --job.dump_folder=ours --parallelism.pipeline_parallel_schedule_csv="$here/zero_bubble.csv"
progress ours.log

say "a wrong schedule is refused before anything runs: I of micro-batch 0 comes before its F"
sed 's/^0F0,0F1,0F2,0I0/0I0,0F0,0F1,0F2/' "$here/zero_bubble.csv" >wrong.csv
if "$coeus" schedule --csv wrong.csv; then exit 1; fi
