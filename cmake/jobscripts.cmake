# SPDX-License-Identifier: Apache-2.0
# The library coeus_jobscripts: the files of the folder jobscripts, for `coeus sbatch`.
set(replaced "")
if(NOT coeus_open_mpi) # Slurm starts MPICH's ranks in another way
    set(replaced REPLACE "--mpi=pmix" "--mpi=pmi2")
endif()
coeus_embed(source jobscripts jobscripts coeus::apps jobscripts.hpp ${replaced})
add_library(coeus_jobscripts STATIC ${source})
target_include_directories(coeus_jobscripts PRIVATE ${PROJECT_SOURCE_DIR}/src/apps/slurm)
target_link_libraries(coeus_jobscripts PRIVATE coeus_options)
