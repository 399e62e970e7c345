#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A stable run, and what comes after it: decay, mid-training, longer rows, and continued pre-training from a Hugging
# Face folder. run.sh [FOLDER [COEUS]]. Everything is written into FOLDER (./recipes). STEPS (40) are those of the
# stable run; the others take half as many.
set -eu
. "$(dirname "$0")/../common.sh"
steps=${STEPS:-40}
more=$((steps / 2))
newest=stable/checkpoint/step-$(printf %08d "$steps").h5

say "two texts, a tokenizer, and their tokens"
[ -f text.jsonl ] || "$here/../stories.sh" 20000 >text.jsonl
[ -f better.jsonl ] || "$here/../stories.sh" 5000 dragon,knight,wizard >better.jsonl
with_log tokenizer.log "$coeus" tokenizer text.jsonl --vocab_size 384 --output tokenizer
with_log tokenize.log "$coeus" tokenize text.jsonl --tokenizer tokenizer --output tokens.h5
with_log tokenize.log "$coeus" tokenize better.jsonl --tokenizer tokenizer --output better.h5

# recipe NAME STEPS OPTIONS...
recipe() {
    name=$1 last=$2
    shift 2
    with_log "$name.log" "$coeus" train "$here/$name.toml" "--training.steps=$last" "$@"
    progress "$name.log"
}

say "the stable run: its rate does not decay"
recipe stable "$steps"

say "a branch of it decays"
recipe decay $((steps + more)) "--checkpoint.initial_load_path=$newest"

say "another branch decays on another mix"
recipe mid_training $((steps + more)) "--checkpoint.initial_load_path=$newest"

say "longer rows, from the weights of the first branch"
recipe long_context "$more"

say "its weights as a Hugging Face folder, and continued pre-training from there"
[ -d base ] || with_log convert.log "$coeus" convert decay base --tokenizer tokenizer
recipe continued "$more"

say "all of them"
"$coeus" report stable decay mid_training long_context continued --output recipes.html >report.log
sed -n '/^loss /p; /^tokens seen/p' report.log
