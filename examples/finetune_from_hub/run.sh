#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From a Hugging Face folder back to one: run.sh [FOLDER [COEUS]]. Everything is written into FOLDER
# (./finetune_from_hub). HUB: a downloaded Hugging Face folder of Llama; default: the model of pretrain_tiny, which is
# trained for BASE_STEPS (60) steps and converted. STEPS: 60.
set -eu
. "$(dirname "$0")/../common.sh"
steps=${STEPS:-60}

if [ -n "${HUB-}" ]; then
    say "the model: $HUB"
    ln -sfn "$(readlink -f "$HUB")" base
else
    say "the model, in place of a download: pretrain_tiny, as a Hugging Face folder"
    STEPS=${BASE_STEPS:-60} with_log pretrain.log "$here/../pretrain_tiny/run.sh" pretrain "$coeus"
    [ -d base ] || with_log convert.log "$coeus" convert pretrain/outputs base --tokenizer pretrain/tokenizer
fi
"$coeus" info base | sed -n '1,6p'

say "new text, as tokens of the model's own tokenizer"
[ -f stories.jsonl ] || "$here/../stories.sh" 5000 dragon,knight,wizard >stories.jsonl
with_log tokenize.log "$coeus" tokenize stories.jsonl --tokenizer base --output tokens.h5
head -n 1 stories.jsonl

say "what the model writes before"
"$coeus" generate --checkpoint base --prompt "A small dragon" --length 40 --temperature 0
echo

say "training on 2 ranks, from the model's weights"
with_log train.log $start -n 2 "$coeus" train "$here/finetune.toml" "--training.steps=$steps" \
    "--validation.freq=$((steps / 2))"
progress train.log

say "what it writes after, from the Hugging Face folder of the run"
result=$(ls -d outputs/checkpoint/hf-*)
"$coeus" info "$result" | sed -n '1,3p'
"$coeus" generate --checkpoint "$result" --prompt "A small dragon" --length 40 --temperature 0
echo
