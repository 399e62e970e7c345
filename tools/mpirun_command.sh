#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mpirun_command.sh [MPIRUN|BUILD_FOLDER]: prints the command that starts ranks: an mpirun with options (they differ
# between Open MPI and MPICH) that allow more ranks than cores and let each rank use all cores. For a build folder it is
# the mpirun of its MPI; default: the mpirun in the PATH.
mpirun=${1:-mpirun}
[ ! -f "$mpirun/CMakeCache.txt" ] || mpirun=$(sed -n 's/^COEUS_MPIRUN:FILEPATH=//p' "$mpirun/CMakeCache.txt")
[ ! -d "$mpirun" ] || mpirun=mpirun # a folder of installed programs
version=$("$mpirun" --version 2>&1) || { echo "$mpirun cannot be started: ranks need an MPI's mpirun" >&2 && exit 1; }
# its name is enough if the PATH leads to it
[ "$(command -v "${mpirun##*/}")" != "$mpirun" ] || mpirun=${mpirun##*/}
case $version in
    *"Open MPI"*) echo "$mpirun --oversubscribe --bind-to none" ;;
    *) echo "$mpirun -bind-to none" ;; # Hydra, the launcher of MPICH and of MPIs derived from it
esac
