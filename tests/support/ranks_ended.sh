#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ranks_ended.sh CODE FOLDER: ends with CODE, which is mpirun's exit code. The mpirun of Open MPI 4.0 and 4.1 sometimes
# misses that a rank has finalised (Open MPI's issue 9389: two threads set bits of one word), and then ends with 1
# although all ranks exited with 0. If the ranks' own codes in FOLDER (stand_ins/mpi/exits.cpp) say so, this script ends
# with 0.
set -u
code=$1 folder=$2 ended=0 ranks=
[ "$code" = 1 ] || exit "$code"
for file in "$folder"/*; do
    [ -f "$file" ] && read -r rank_code ranks <"$file" && [ "$rank_code" = 0 ] || exit "$code"
    ended=$((ended + 1))
done
[ "$ended" = "$ranks" ] || exit "$code"
echo "mpirun missed that a rank had finalised: its exit code 1 counts as 0, since all $ranks ranks exited with 0"
