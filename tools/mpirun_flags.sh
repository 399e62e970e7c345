#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mpirun_flags.sh [MPIRUN]: the options by which this mpirun (default: the one in the PATH) starts more ranks than cores,
# each free to use all cores: they differ between Open MPI and MPICH.
mpirun=${1:-mpirun}
version=$("$mpirun" --version 2>&1) || { echo "$mpirun cannot be started: ranks need an MPI's mpirun" >&2 && exit 1; }
case $version in
    *"Open MPI"*) echo "--oversubscribe --bind-to none" ;;
    *) echo "-bind-to none" ;; # Hydra, of MPICH and those that descend from it
esac
