# SPDX-License-Identifier: Apache-2.0
# Finds CUDA 12.4 or newer if COEUS_CUDA is on: in COEUS_CUDA_PYTHON (a Python environment with nvidia packages),
# CUDA_HOME, /usr/local/cuda, the PATH or the active Python environment (VIRTUAL_ENV).
# newer GPUs than the last one run its PTX, which the driver compiles when the program starts
set(COEUS_CUDA_ARCH "80-real;90" CACHE STRING
    "GPUs to build for: 80 (A100), 89 (L40), 90 (H100, H200), 100 (B200), 120 (RTX 50); NUMBER-real: without PTX; every: all of them that the toolkit knows")
set(COEUS_CUDA_PYTHON "$ENV{COEUS_CUDA_PYTHON}" CACHE PATH "Python environment whose nvidia packages are the toolkit")
include(cmake/cuda_python.cmake)
if(NOT CMAKE_CUDA_COMPILER)
    set(toolkit "")
    # an environment that COEUS_CUDA_PYTHON names comes before the machine's CUDA; one that is merely active comes after
    if(COEUS_CUDA_PYTHON)
        coeus_cuda_from_python(${COEUS_CUDA_PYTHON} ${PROJECT_BINARY_DIR}/cuda-toolkit toolkit)
        if(NOT toolkit)
            message(FATAL_ERROR "COEUS_CUDA_PYTHON = ${COEUS_CUDA_PYTHON}: there is no "
                "lib/python3*/site-packages/nvidia/*/bin/nvcc in it (package nvidia-cuda-nvcc)")
        endif()
    else()
        find_program(CMAKE_CUDA_COMPILER nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
        if(NOT CMAKE_CUDA_COMPILER AND DEFINED ENV{VIRTUAL_ENV})
            coeus_cuda_from_python($ENV{VIRTUAL_ENV} ${PROJECT_BINARY_DIR}/cuda-toolkit toolkit)
        endif()
    endif()
    if(toolkit)
        set(CMAKE_CUDA_COMPILER ${toolkit}/bin/nvcc CACHE FILEPATH "" FORCE)
    endif()
endif()
if(NOT CMAKE_CUDA_COMPILER)
    coeus_missing("CUDA (COEUS_CUDA is on; looked for nvcc in CUDA_HOME, /usr/local/cuda, the PATH and VIRTUAL_ENV)"
        nvidia-cuda-toolkit cuda cuda)
endif()
set(CMAKE_CUDA_ARCHITECTURES ${COEUS_CUDA_ARCH})
if(COEUS_CUDA_ARCH STREQUAL "every")
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
enable_language(CUDA)
# L40 runs the code for A100, except for that of the files *_8_bit.cu (libraries.cmake)
if(COEUS_CUDA_ARCH STREQUAL "every" AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
    list(APPEND CMAKE_CUDA_ARCHITECTURES 100-real 120-real)
endif()
# CMake 3.25 does not know nvcc's options for C++20
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
find_package(CUDAToolkit 12.4 REQUIRED)

# keeps what ptxas reports of each kernel, for tools/kernel_resources.py
if(NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/tools/keep_ptxas.sh ${PROJECT_SOURCE_DIR}/tools/compiler_cache.sh)
endif()
set(options
    # constexpr functions run on the device too; nvcc cannot compile fmt's consteval functions: they become plain ones
    --expt-relaxed-constexpr -DFMT_CONSTEVAL= -DFMT_USE_CONSTEXPR=1
    -Xcompiler=-Wall,-Wextra,-fopenmp
    # an option of its own: the compiler cache takes a path within -Xcompiler for another option in each clone
    -ffile-prefix-map=${PROJECT_SOURCE_DIR}/=
    # NVIDIA's profilers and compute-sanitizer name lines. The names are much larger than the code, unless compressed
    -lineinfo -Xfatbin=-compress-all
    -Xptxas=-v)
target_compile_options(coeus_options INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:${options}>")
