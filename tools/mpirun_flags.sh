#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the options by which `mpirun` starts more ranks than cores, each free to use all cores: they differ between
# Open MPI and MPICH.
case $(mpirun --version 2>&1) in
    *"Open MPI"*) echo "--oversubscribe --bind-to none" ;;
    *) echo "-bind-to none" ;; # Hydra, of MPICH and those that come from it
esac
