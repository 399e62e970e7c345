# SPDX-License-Identifier: Apache-2.0
# Writes paths.txt next to the programs of the tests, which tests/support/paths.cpp reads: a line for each path.

get_filename_component(mpirun "${COEUS_MPIRUN}" NAME) # no path, so that the tests of a bundle start its mpirun
set(paths "mpirun ${mpirun} ${coeus_mpirun_flags}\nsource ${PROJECT_SOURCE_DIR}\ncache ${CMAKE_CURRENT_BINARY_DIR}/cache\n")
foreach(pair program=coeus_program emulated_program=coeus_emulated naps=coeus_naps exits=coeus_exits counter=coeus_counter
        disk=coeus_disk bad_reads=coeus_bad_reads hosts=coeus_hosts nvml=coeus_nvml_stand_in nccl=nccl_stand_in nccl_unsplit=nccl_unsplit
        nccl_old=nccl_old nccl_partial=nccl_partial nccl_shared=nccl_shared nccl_emulated=nccl_emulated)
    string(REPLACE "=" ";" pair ${pair})
    list(GET pair 0 name)
    list(GET pair 1 target)
    # a build may lack the target
    string(APPEND paths "${name} $<$<TARGET_EXISTS:${target}>:$<TARGET_FILE:${target}>>\n")
endforeach()
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/paths.txt CONTENT "${paths}")
