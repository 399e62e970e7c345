#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The steps of `make run` after the build: English text, a tokenizer, training on two ranks, a sample. Each step is done
# once: a second call continues where the first one stopped, or says that everything is done.
set -eu
export LC_NUMERIC=C
cd "$(dirname "$0")/.."

program=build/coeus
deck=inputs/llama3_debug.toml
output=outputs/llama3_debug
dictionary=/usr/share/dictd/gcide.dict.dz
prompt=${PROMPT:-"Music is the art of"}

say() { printf '\n== %s\n' "$*"; }

mkdir -p run
if [ ! -s run/gcide.txt ]; then
    say "text: run/gcide.txt, the Collaborative International Dictionary of English"
    if [ ! -r "$dictionary" ]; then
        echo "$dictionary is missing: it comes with Debian's package dict-gcide (make deps)." >&2
        echo "Any other English text of about 10 MB can be used as run/gcide.txt." >&2
        exit 2
    fi
    # the file has one broken byte sequence: -c drops it, and iconv then ends with 1
    gzip -dc <"$dictionary" | iconv -c -f UTF-8 -t UTF-8 >run/gcide.txt.part || true
    [ -s run/gcide.txt.part ] || { echo "cannot unpack $dictionary" >&2; exit 3; }
    mv run/gcide.txt.part run/gcide.txt
    echo "$(wc -c <run/gcide.txt) bytes"
fi

if [ ! -s run/tokenizer/tokenizer.json ]; then
    say "tokenizer: run/tokenizer, 2048 tokens learned from the text"
    rm -rf run/tokenizer.part
    "$program" tokenizer run/gcide.txt --vocab_size 2048 --output run/tokenizer.part
    rm -rf run/tokenizer
    mv run/tokenizer.part run/tokenizer
fi

# root may run Open MPI; two ranks may share one core, and then wait without spinning
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# otherwise Open MPI 5 asks the system for a route to its own address and prints "Unable to find reachable pairing"
export OMPI_MCA_reachable="${OMPI_MCA_reachable:-weighted}"
start="$(tools/mpirun_command.sh build) -n 2 $program train $deck"
say "training: $start"
code=0
$start || code=$?
if [ "$code" -ne 0 ]; then
    echo "training ended with exit code $code" >&2
    case $code in 2 | 4) ;; *) echo "'make run' continues from the last checkpoint in $output" >&2 ;; esac
    exit "$code"
fi

say "sample: the model continues \"$prompt\""
generate="$program generate --checkpoint $output --prompt"
$generate "$prompt"
echo

say "done"
# prints the newest value of a field in metrics.jsonl, which has one JSON object per line
last() {
    sed -n "s/.*\"step\": *\([0-9]*\).*\"$1\": *\([0-9.eE+-]*\).*/\2 \1/p" "$output/metrics.jsonl" | tail -n 1 |
        while read -r value step; do printf '%.4f at step %s' "$value" "$step"; done
}
echo "last loss             $(last loss)"
echo "last validation loss  $(last validation_loss)"
echo "metrics, checkpoints  $output"
echo "train longer          $start --training.steps=1000"
echo "write more            $generate \"The sea is\""
echo "plots                 $output/report.html; $program report $output"
