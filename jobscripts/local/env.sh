# SPDX-License-Identifier: Apache-2.0
# One machine that plays a cluster (tests/slurm/cluster.sh), or a workstation with Slurm.

coeus=(${COEUS:-build/coeus})
[ ! -x "${COEUS-}" ] || coeus=("$COEUS") # a path, blanks and all
launch=(${COEUS_LAUNCH:-srun --mpi=pmix --kill-on-bad-exit=1})

# Slurm does not bind tasks here
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
# there may be more ranks than cores: those that wait give way
export OMPI_MCA_mpi_yield_when_idle=1
# mpirun, as root
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
