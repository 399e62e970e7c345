#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mpirun.sh LIBRARY MPIRUN [options]: runs this mpirun, with the library that notes the ranks' exit codes, and ends as
# ranks_ended.sh says.
set -u
library=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
LD_PRELOAD=$library COEUS_RANK_EXITS=$folder "$@"
sh "$(dirname "$0")/ranks_ended.sh" $? "$folder"
