#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tokens of a tokenizer of your own: run.sh [FOLDER [COEUS]]. Everything is written into FOLDER (./data). STEPS: 20.
set -eu
. "$(dirname "$0")/../common.sh"
steps=${STEPS:-20}

say "text: 400 stories, one on each line"
"$here/../stories.sh" 400 | sed -e 's/^{"text": "//' -e 's/"}$//' >stories.txt
head -n 1 stories.txt

say "tokens: a pair of Megatron-LM, written by a script"
python3 "$here/tokens.py" stories.txt stories
"$coeus" info stories

say "training on the pair"
with_log train.log "$coeus" train "$here/bytes.toml" "--training.steps=$steps"
progress train.log

say "the same tokens in one file of HDF5"
rm -f stories.h5
with_log convert.log "$coeus" convert stories stories.h5
"$coeus" info stories.h5
