# SPDX-License-Identifier: Apache-2.0
# A CUDA toolkit out of a Python environment, whose nvidia packages hold its parts: nvidia/cu13/{bin,include,lib,nvvm}
# (CUDA 13), nvidia/cuda_nvcc, nvidia/cuda_runtime, nvidia/cublas ... (CUDA 12), nvidia/nccl, nvidia/cudnn. Links in
# `toolkit` join them to the one tree that CMake looks for, with the libraries' plain names, which the packages lack.

# Sets `result` to the toolkit's folder, or to "" where `python` (an environment's folder) has no nvcc.
function(coeus_cuda_from_python python toolkit result)
    set(${result} "" PARENT_SCOPE)
    file(GLOB compilers ${python}/lib/python3*/site-packages/nvidia/*/bin/nvcc)
    if(NOT compilers)
        return()
    endif()
    list(GET compilers 0 compiler)
    get_filename_component(packages ${compiler}/../../.. ABSOLUTE)
    file(REMOVE_RECURSE ${toolkit})
    foreach(part bin include lib nvvm)
        file(GLOB_RECURSE found RELATIVE ${packages} ${packages}/*/${part}/*)
        foreach(file ${found})
            # not of a folder of this name deeper in a package
            if(NOT file MATCHES "^[^/]+/(${part}/.*)$")
                continue()
            endif()
            set(place ${CMAKE_MATCH_1})
            if(EXISTS ${toolkit}/${place})
                continue()
            endif()
            get_filename_component(folder ${toolkit}/${place} DIRECTORY)
            file(MAKE_DIRECTORY ${folder})
            # nvcc looks for its parts beside the file that a link leads to
            if(place STREQUAL "bin/nvcc")
                file(COPY ${packages}/${file} DESTINATION ${folder})
            else()
                file(CREATE_LINK ${packages}/${file} ${toolkit}/${place} SYMBOLIC)
            endif()
            string(REGEX REPLACE "[.]so[.0-9]+$" ".so" plain ${toolkit}/${place})
            if(NOT EXISTS ${plain})
                file(CREATE_LINK ${packages}/${file} ${plain} SYMBOLIC)
            endif()
        endforeach()
    endforeach()
    file(CREATE_LINK lib ${toolkit}/lib64 SYMBOLIC)
    set(${result} ${toolkit} PARENT_SCOPE)
endfunction()
