# SPDX-License-Identifier: Apache-2.0
# Builds one static library per folder of src. A folder may use the folders named after its USES, and those that they
# use. The order is the layering of doc/design.md; tools/check_includes.py checks that the includes obey it.

include(cmake/embedded.cmake)

function(coeus_compile_in_batches target)
    if(COEUS_UNITY_BATCH GREATER 1)
        set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${COEUS_UNITY_BATCH})
    endif()
endfunction()

# coeus_library(NAME [USES folders] [LIBRARIES private ones] [PUBLIC_LIBRARIES public ones])
function(coeus_library name)
    cmake_parse_arguments(arg "" "" "USES;LIBRARIES;PUBLIC_LIBRARIES" ${ARGN})
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cpp)
    list(FILTER sources EXCLUDE REGEX "/main.cpp$")
    list(TRANSFORM arg_USES PREPEND coeus_)
    set_property(GLOBAL APPEND PROPERTY COEUS_LIBRARIES coeus_${name})
    set_property(GLOBAL APPEND PROPERTY COEUS_DEPENDENCIES ${arg_LIBRARIES} ${arg_PUBLIC_LIBRARIES})
    if(COEUS_LIBRARIES_OF)
        add_library(coeus_${name} STATIC IMPORTED)
        set_target_properties(coeus_${name} PROPERTIES IMPORTED_LOCATION ${COEUS_LIBRARIES_OF}/libcoeus_${name}.a)
        target_link_libraries(coeus_${name} INTERFACE coeus_options ${arg_USES} ${arg_LIBRARIES} ${arg_PUBLIC_LIBRARIES})
        return()
    endif()
    add_library(coeus_${name} STATIC ${sources})
    # the files of kernels are compiled separately: inlining a function of another file may change how multiply-adds are
    # fused
    if(NOT name STREQUAL kernels)
        coeus_compile_in_batches(coeus_${name})
    endif()
    if(name MATCHES "^(device|file|hdf5|kernels|data)$")
        coeus_optimise_sanitized(coeus_${name})
    endif()
    # what runs at the start of a job or once a step: -O3 would take a third longer to compile
    if(name MATCHES "^(apps|config|deck|evaluate|guards|info|job|metrics|models|observe|report|session|setup|train|watchdog)$")
        target_compile_options(coeus_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
    endif()
    # each *_none.cpp is compiled separately: its functions report that there is no GPU, and its object must stay out of
    # a program that gets these functions from the GPU's library
    list(FILTER sources INCLUDE REGEX "_none.cpp$")
    set_source_files_properties(${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    target_link_libraries(coeus_${name} PUBLIC coeus_options ${arg_USES} ${arg_PUBLIC_LIBRARIES} PRIVATE ${arg_LIBRARIES})
endfunction()

coeus_library(base LIBRARIES spdlog::spdlog Boost::context coeus_pcre2 ${CMAKE_DL_LIBS} PUBLIC_LIBRARIES fmt::fmt)
set_source_files_properties(src/base/version.cpp PROPERTIES COMPILE_DEFINITIONS
    "COEUS_VERSION=\"${PROJECT_VERSION}\";COEUS_BUILD_TYPE=\"${CMAKE_BUILD_TYPE}\";COEUS_ARCH=\"${COEUS_ARCH}\"")
# files with the formulas of coeus/base/normal_formulas.hpp, whose products must not be fused with sums
set_source_files_properties(src/base/random.cpp src/kernels/cpu/updates/draw.cpp PROPERTIES COMPILE_OPTIONS
    -ffp-contract=off)
coeus_library(device USES base LIBRARIES coeus_hwloc OpenMP::OpenMP_CXX ${CMAKE_DL_LIBS})
coeus_library(comm USES device base LIBRARIES MPI::MPI_CXX)
coeus_library(job USES comm base LIBRARIES Threads::Threads)
coeus_library(file USES device base LIBRARIES nlohmann_json::nlohmann_json coeus_tomlplusplus coeus_xxhash coeus_zlib
    coeus_zstd)
# this file changes macros on which other files' headers depend
set_source_files_properties(src/file/toml.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
coeus_library(deck_names)
coeus_library(config USES deck_names comm file base LIBRARIES Boost::program_options)
coeus_library(hdf5 USES file base LIBRARIES coeus_libhdf5)
coeus_library(kernels USES device base LIBRARIES coeus_onednn coeus_openblas OpenMP::OpenMP_CXX)
# whether the compiler fuses the multiply-adds of a sum depends on the shape of the loop; here all shapes must give the
# same bits
set_source_files_properties(src/kernels/cpu/products/thin_gemm.cpp PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
# with AVX-512, GCC prefers vectors of 256 bits; conversions to 8 bits and back take 0.6 to 0.7 of the time with 512
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    set_source_files_properties(src/kernels/cpu/quantization/quantization.cpp
        PROPERTIES COMPILE_OPTIONS -mprefer-vector-width=512 SKIP_UNITY_BUILD_INCLUSION ON)
endif()
# for tests/unit: the CPU's kernels of a build for x86-64-v3, made to believe that the CPU has no AVX-512. On a CPU that
# has none, the usual build has the same kernels.
if(COEUS_BUILD_TESTS AND NOT COEUS_LIBRARIES_OF AND NOT COEUS_SANITIZE AND NOT COEUS_ARCH STREQUAL "x86-64-v3"
   AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    include(CheckCXXSourceRuns)
    check_cxx_source_runs("int main() { return !__builtin_cpu_supports(\"avx512f\"); }" COEUS_HAS_AVX512)
    if(COEUS_HAS_AVX512)
        get_target_property(sources coeus_kernels SOURCES)
        list(FILTER sources EXCLUDE REGEX "src/kernels/(cuda/|[a-z_]*cuda[a-z_]*.cpp$)") # these do not depend on it
        get_target_property(libraries coeus_kernels LINK_LIBRARIES)
        add_library(coeus_kernels_v3 OBJECT EXCLUDE_FROM_ALL ${sources})
        set_target_properties(coeus_kernels_v3 PROPERTIES COEUS_ARCH x86-64-v3 EXPORT_COMPILE_COMMANDS OFF)
        coeus_optimise_sanitized(coeus_kernels_v3)
        target_link_libraries(coeus_kernels_v3 PRIVATE ${libraries})
        # the function that tests/stand_ins/cpu/avx2.cpp defines
        target_compile_definitions(coeus_kernels_v3 PUBLIC cpu_vector_level=avx2_level)
    endif()
endif()
coeus_library(state USES deck_names comm kernels device base)
coeus_library(layers USES state comm kernels device base LIBRARIES OpenMP::OpenMP_CXX)
coeus_library(models USES layers state kernels file base)
coeus_library(pipeline USES models layers state comm device file base)
coeus_library(optim USES deck_names state comm device base)
coeus_library(hub USES state comm device file base)
coeus_library(io USES hub state comm hdf5 device file base)
coeus_library(data USES hdf5 file base LIBRARIES coeus_pcre2 coeus_utf8proc coeus_sentencepiece coeus_arrow Threads::Threads)
coeus_library(plan USES pipeline models layers comm kernels base)
coeus_library(engine USES plan pipeline optim layers state comm device)
coeus_library(predict USES engine pipeline comm kernels file base)
if(NOT COEUS_LIBRARIES_OF)
    coeus_embed(machines machines machine_files coeus machines.hpp)
    target_sources(coeus_predict PRIVATE ${machines})
    target_include_directories(coeus_predict PRIVATE ${PROJECT_SOURCE_DIR}/src/predict)
endif()
coeus_library(generate USES plan pipeline models data layers state comm device file base)
coeus_library(deck USES config models optim comm base)
coeus_library(pretrained USES deck config models io hub data optim comm device file base)
coeus_library(guards USES config engine io state comm device file base)
coeus_library(observe USES config engine pipeline comm device file base)
coeus_library(watchdog USES config comm file base LIBRARIES Threads::Threads)
coeus_library(metrics USES config comm device file base)
coeus_library(evaluate USES metrics engine models data file base)
coeus_library(report USES metrics config comm device file base)
if(NOT COEUS_LIBRARIES_OF)
    set(page ${PROJECT_SOURCE_DIR}/src/report/page/page)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page}.css ${page}.js)
    file(READ ${page}.css style)
    file(READ ${page}.js script)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/report_page.cpp CONTENT [=[
// generated from src/report/page/page.css and page.js
#include "page.hpp"

namespace coeus::report {

const char* const page_style = R"css(@style@)css";
const char* const page_script = R"js(@script@)js";

}  // namespace coeus::report
]=] @ONLY)
    target_sources(coeus_report PRIVATE ${PROJECT_BINARY_DIR}/report_page.cpp)
    target_include_directories(coeus_report PRIVATE ${PROJECT_SOURCE_DIR}/src/report/page)
endif()
coeus_library(setup USES engine config pipeline optim models state comm device base)
coeus_library(session USES setup predict observe pretrained engine deck config plan io comm kernels device base)
coeus_library(train USES generate evaluate session setup report metrics watchdog observe guards pretrained engine config job plan optim
    data io models state comm device file base LIBRARIES Threads::Threads)
coeus_library(info USES train session pretrained deck data io hub models kernels hdf5 file base)

add_library(coeus INTERFACE)
get_property(libraries GLOBAL PROPERTY COEUS_LIBRARIES)
target_link_libraries(coeus INTERFACE ${libraries})

# all code for GPUs is in one library. It is linked whole and before coeus, whose functions of the same names report
# that there is no GPU
if(COEUS_CUDA)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cu)
    # wgmma exists in sm_90a only, whose code no other GPU runs: these files are compiled for it alone, whatever
    # COEUS_CUDA_ARCH is
    set(wgmma_sources ${sources})
    list(FILTER wgmma_sources INCLUDE REGEX "_wgmma.cu$")
    list(FILTER sources EXCLUDE REGEX "_wgmma.cu$")
    add_library(coeus_cuda_sm_90a OBJECT ${wgmma_sources})
    set_target_properties(coeus_cuda_sm_90a PROPERTIES CUDA_ARCHITECTURES 90a-real)
    target_link_libraries(coeus_cuda_sm_90a PRIVATE coeus CUDA::cudart)
    # products of 8-bit floats exist from sm_89 on. A100 does without these files, and L40, which runs the
    # other files' code for A100, gets code for itself
    set(8_bit_sources ${sources})
    list(FILTER 8_bit_sources INCLUDE REGEX "_8_bit.cu$")
    list(FILTER sources EXCLUDE REGEX "_8_bit.cu$")
    set(8_bit_architectures ${CMAKE_CUDA_ARCHITECTURES})
    list(TRANSFORM 8_bit_architectures REPLACE "^8[0-8]" "89")
    # RTX 50 would run the PTX of sm_90, which converts the products to half precision
    if(NOT 8_bit_architectures MATCHES "12[0-9]" AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
        list(APPEND 8_bit_architectures 120-real)
    endif()
    list(REMOVE_DUPLICATES 8_bit_architectures)
    add_library(coeus_cuda_8_bit OBJECT ${8_bit_sources})
    set_target_properties(coeus_cuda_8_bit PROPERTIES CUDA_ARCHITECTURES "${8_bit_architectures}")
    target_link_libraries(coeus_cuda_8_bit PRIVATE coeus CUDA::cudart)
    add_library(coeus_cuda STATIC ${sources} $<TARGET_OBJECTS:coeus_cuda_sm_90a> $<TARGET_OBJECTS:coeus_cuda_8_bit>)
    target_link_libraries(coeus_cuda PUBLIC coeus CUDA::cudart CUDA::cublasLt)
    set(coeus_with_gpu $<LINK_LIBRARY:WHOLE_ARCHIVE,coeus_cuda> coeus)
else()
    set(coeus_with_gpu coeus)
endif()

# the commands; main() is not in the library
include(cmake/jobscripts.cmake)
include(cmake/built_with.cmake)
coeus_library(apps USES info train session report watchdog observe pretrained generate evaluate deck config job pipeline data io
    models comm device file base LIBRARIES coeus_jobscripts coeus_built_with)
# coeus_executable(NAME LIBRARIES): the program, with the libraries of a build with or without GPUs
function(coeus_executable name)
    add_executable(${name} ${PROJECT_SOURCE_DIR}/src/apps/main.cpp)
    # exports the symbols, so that the stack of a rank that hangs shows the functions' names
    set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON)
    target_link_libraries(${name} PRIVATE ${ARGN} coeus_apps)
endfunction()
coeus_executable(coeus_program ${coeus_with_gpu})
set_target_properties(coeus_program PROPERTIES OUTPUT_NAME coeus RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})

# the target that find_package(Coeus) defines, for programs of this build
add_library(coeus_with_commands INTERFACE)
target_link_libraries(coeus_with_commands INTERFACE ${coeus_with_gpu} coeus_apps)
target_compile_features(coeus_with_commands INTERFACE cxx_std_20)
add_library(Coeus::coeus ALIAS coeus_with_commands)
