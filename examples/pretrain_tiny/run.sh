#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From text to a model that writes: run.sh [FOLDER [COEUS]]. Everything is written into FOLDER (./pretrain_tiny); a
# second call resumes or finds that all is done. STEPS: 200.
set -eu
. "$(dirname "$0")/../common.sh"
steps=${STEPS:-200}

say "text: 20,000 stories, one JSON object a line"
[ -f stories.jsonl ] || "$here/../stories.sh" 20000 >stories.jsonl
head -n 1 stories.jsonl

say "tokenizer: 384 tokens learned from the text"
[ -d tokenizer ] || with_log tokenizer.log "$coeus" tokenizer stories.jsonl --vocab_size 384 --output tokenizer

say "tokens: the text as numbers, made once"
with_log tokenize.log "$coeus" tokenize stories.jsonl --tokenizer tokenizer --output tokens.h5
"$coeus" info tokens.h5 | sed -n '1,5p'

say "training on 2 ranks"
with_log train.log $start -n 2 "$coeus" train "$here/tiny.toml" "--training.steps=$steps" "--validation.freq=$((steps / 2))"
progress train.log

say "a text of the model"
"$coeus" generate --checkpoint outputs --prompt "A small fox" --length 60 --temperature 0.5
echo

say "figures of the run; outputs/report.html shows them as plots"
"$coeus" report outputs | sed -n '1,12p'
