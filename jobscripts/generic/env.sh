# SPDX-License-Identifier: Apache-2.0
# For any Slurm cluster: modules to load, how ranks are started, and where the program is. Adapt it to your cluster.
# `coeus info --build` shows the MPI and CUDA versions of the build.

# module load gcc openmpi cuda
# if NCCL or MPI takes a wrong network (`ip -br addr` and `ibv_devices` show the names):
# export NCCL_SOCKET_IFNAME=ib0 NCCL_IB_HCA=mlx5 OMPI_MCA_btl_tcp_if_include=ib0

coeus=(${COEUS:-build/coeus})
[ ! -x "${COEUS-}" ] || coeus=("$COEUS") # a path, which may contain spaces
# `srun --mpi=list` shows the types that this Slurm supports; without pmix, use mpirun --bind-to none
launch=(${COEUS_LAUNCH:-srun --mpi=pmix --kill-on-bad-exit=1})
# srun does not inherit this option from sbatch
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
