# SPDX-License-Identifier: Apache-2.0
# For one machine that simulates a cluster (tests/slurm/cluster.sh), or a workstation with Slurm.

coeus=(${COEUS:-build/coeus})
[ ! -x "${COEUS-}" ] || coeus=("$COEUS") # a path, which may contain spaces
launch=(${COEUS_LAUNCH:-srun --mpi=pmix --kill-on-bad-exit=1})

# here, Slurm does not bind tasks to cores
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
# there may be more ranks than cores, so waiting ranks must yield
export OMPI_MCA_mpi_yield_when_idle=1
# let root use mpirun
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
