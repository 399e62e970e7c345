# SPDX-License-Identifier: Apache-2.0
# CUDA, where COEUS_CUDA asks for it: >= 12.4 from CUDA_HOME, /usr/local/cuda or the PATH.
set(COEUS_CUDA_ARCH "80-real;90a-real" CACHE STRING "GPUs to build for: 80 (A100), 89 (L40), 90a (H100, H200), 100 (B200)")
if(NOT CMAKE_CUDA_COMPILER)
    find_program(CMAKE_CUDA_COMPILER nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
    coeus_missing("CUDA (COEUS_CUDA is on)" nvidia-cuda-toolkit cuda cuda)
endif()
set(CMAKE_CUDA_ARCHITECTURES ${COEUS_CUDA_ARCH})
enable_language(CUDA)
# CMake 3.25 does not know how nvcc is asked for C++20
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
find_package(CUDAToolkit 12.4 REQUIRED)

# constexpr functions run on the device too; what fmt computes while compiling, nvcc takes for plain functions
set(options --expt-relaxed-constexpr -Werror=all-warnings -Xcompiler=-Wall,-Wextra,-fopenmp
    -DFMT_CONSTEVAL= -DFMT_USE_CONSTEXPR=1)
target_compile_options(coeus_options INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:${options}>")
