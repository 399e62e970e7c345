# SPDX-License-Identifier: Apache-2.0
# Makes a CUDA toolkit from a Python environment whose nvidia packages contain its parts: nvidia/cu13/{bin,include,lib,
# nvvm} (CUDA 13), nvidia/cuda_nvcc, nvidia/cuda_runtime, nvidia/cublas ... (CUDA 12), nvidia/nccl, nvidia/cudnn. Links
# in the folder `toolkit` join the parts into one tree, as CMake expects, and give the libraries their plain names
# (without a version), which the packages lack.

# Sets `result` to the toolkit's folder, or to "" if `python` (the folder of an environment) has no nvcc.
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
            # skips a folder of this name deeper inside a package
            if(NOT file MATCHES "^[^/]+/(${part}/.*)$")
                continue()
            endif()
            set(place ${CMAKE_MATCH_1})
            if(EXISTS ${toolkit}/${place})
                continue()
            endif()
            get_filename_component(folder ${toolkit}/${place} DIRECTORY)
            file(MAKE_DIRECTORY ${folder})
            # nvcc looks for its parts next to the file to which a link points, so it is copied
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
