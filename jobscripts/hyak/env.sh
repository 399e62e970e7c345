# SPDX-License-Identifier: Apache-2.0
# For UW HYAK klone: Coeus in a container (COEUS_IMAGE, doc/cluster.md), or built with modules, which only compute nodes
# have.

if [ -n "${COEUS_IMAGE:-}" ]; then
    # --nv: the node's driver; /gscratch: decks, data and checkpoints
    coeus=(apptainer exec --nv --bind /gscratch "$COEUS_IMAGE" coeus)
else
    # `module avail` shows the versions; use those of the build
    module load ${COEUS_MODULES:-gcc ompi cuda}
    coeus=(${COEUS:-build/coeus})
    [ ! -x "${COEUS-}" ] || coeus=("$COEUS") # a path, which may contain spaces
fi
# if `srun --mpi=list` does not show pmix, use mpirun --bind-to none
launch=(${COEUS_LAUNCH:-srun --mpi=pmix --kill-on-bad-exit=1})
# if NCCL or MPI takes a wrong network (`ip -br addr` and `ibv_devices` show the names):
# export NCCL_SOCKET_IFNAME=ib0 NCCL_IB_HCA=mlx5 OMPI_MCA_btl_tcp_if_include=ib0
# srun does not inherit this option from sbatch
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
