# SPDX-License-Identifier: Apache-2.0
# UW HYAK klone: in a container (COEUS_IMAGE, doc/cluster.md), or built with modules, which only compute nodes have.

if [ -n "${COEUS_IMAGE:-}" ]; then
    # --nv: the driver of the node; /gscratch: decks, data and checkpoints
    coeus=(apptainer exec --nv --bind /gscratch "$COEUS_IMAGE" coeus)
else
    # `module avail` names the versions; those that the program was built with
    module load ${COEUS_MODULES:-gcc ompi cuda}
    coeus=(${COEUS:-build/coeus})
    [ ! -x "${COEUS-}" ] || coeus=("$COEUS") # a path, blanks and all
fi
# where `srun --mpi=list` names no pmix: mpirun --bind-to none
launch=(${COEUS_LAUNCH:-srun --mpi=pmix --kill-on-bad-exit=1})
# srun does not take it over from sbatch by itself
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
