# SPDX-License-Identifier: Apache-2.0
# Any Slurm cluster: what to load, how ranks are started, and where the program is. To be adapted; `coeus info --build`
# names the MPI and the CUDA that the program was built with.

# module load gcc openmpi cuda

coeus=(${COEUS:-build/coeus})
[ ! -x "${COEUS-}" ] || coeus=("$COEUS") # a path, blanks and all
# `srun --mpi=list` names what this Slurm speaks; without pmix: mpirun --bind-to none
launch=(${COEUS_LAUNCH:-srun --mpi=pmix --kill-on-bad-exit=1})
# srun does not take it over from sbatch by itself
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
