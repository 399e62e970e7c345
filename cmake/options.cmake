# SPDX-License-Identifier: Apache-2.0
# Compiler options of our own code, as the interface library coeus_options.
add_library(coeus_options INTERFACE)
target_include_directories(coeus_options INTERFACE ${PROJECT_SOURCE_DIR}/include)
set(options
    -Wall -Wextra -Wpedantic
    # designated initialisers leave the rest to the defaults on purpose
    -Wno-missing-field-initializers
    # vectors wider than the CPU's registers never cross a library's boundary
    -Wno-psabi
    # no -ffast-math: it would break the checks for NaN; these two only drop errno and traps
    -fno-math-errno -fno-trapping-math
    # a target may have a COEUS_ARCH of its own
    -march=$<IF:$<BOOL:$<TARGET_PROPERTY:COEUS_ARCH>>,$<TARGET_PROPERTY:COEUS_ARCH>,${COEUS_ARCH}>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    list(APPEND options
        # not with Clang, to which each constant of a batch's other files is shadowed
        -Wshadow
        # GCC 12 warns falsely inside std::string at -O3 (GCC bug 105651)
        -Wno-restrict
        # to GCC a file of a batch (COEUS_UNITY_BATCH) is a header; in headers tools/check_files.py looks for it
        -Wno-subobject-linkage)
else()
    list(APPEND options
        # Clang says where it does not vectorise
        -Wno-pass-failed
        # Clang 16 and newer sees what the headers of GCC 12 call in std::stable_sort
        -Wno-deprecated-declarations)
    # Clang 16 and 17 recurse without end over vectors of bfloat16 if they may use AVX512-BF16
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 16
       AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 18)
        list(APPEND options -mno-avx512bf16)
        message(STATUS "Clang ${CMAKE_CXX_COMPILER_VERSION} crashes over AVX512-BF16: built without it, with slower products in bfloat16")
    endif()
    # Clang 14 lacks what the headers of GCC 12 ask of a compiler
    include(CheckCXXSourceCompiles)
    set(CMAKE_REQUIRED_FLAGS "-std=c++20 ${OpenMP_CXX_FLAGS}")
    check_cxx_source_compiles("#include <omp.h>
        #include <source_location>
        int main() { return int(std::source_location::current().line()) - omp_get_max_threads(); }" COEUS_READS_GCC_HEADERS)
    unset(CMAKE_REQUIRED_FLAGS)
    if(NOT COEUS_READS_GCC_HEADERS)
        list(APPEND options -include ${PROJECT_SOURCE_DIR}/tools/clang_shim.hpp)
    endif()
endif()
target_compile_options(coeus_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${options}>")
target_compile_definitions(coeus_options INTERFACE $<$<CONFIG:Debug>:COEUS_DEBUG>)
# full vectorisation also in -O2 builds; Debug builds are used with sanitizers and must not take minutes
set(CMAKE_CXX_FLAGS_RELEASE "-O3")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")

if(COEUS_SANITIZE)
    target_compile_options(coeus_options INTERFACE -fsanitize=${COEUS_SANITIZE} -fno-omit-frame-pointer
        -fno-sanitize-recover=all)
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
        # GCC 12 reports false positives inside libstdc++ and fmt once sanitizers change inlining
        target_compile_options(coeus_options INTERFACE -Wno-error=maybe-uninitialized -Wno-error=stringop-overflow)
    endif()
    target_link_options(coeus_options INTERFACE -fsanitize=${COEUS_SANITIZE})
    # optimising what sanitizers add takes longer than all the rest of a build; fuzzers run for longer than that
    if(NOT COEUS_FUZZ)
        set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1")
        # half of each program would be relocations of what the sanitizers say, done again at each start
        target_link_options(coeus_options INTERFACE -no-pie)
    endif()
endif()
# gold links in half the time of the default, for the many programs of the tests; coeus itself is linked as users do
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=gold COEUS_HAS_GOLD)
# for a target in which tests with sanitizers spend their time
function(coeus_optimise_sanitized target)
    if(COEUS_SANITIZE)
        target_compile_options(${target} PRIVATE -O1)
    endif()
endfunction()

if(COEUS_FUZZ)
    if(NOT CMAKE_CXX_COMPILER_ID STREQUAL Clang)
        message(FATAL_ERROR "COEUS_FUZZ = ON needs Clang, whose libFuzzer it uses, and the compiler is ${CMAKE_CXX_COMPILER}: "
            "call `make fuzz`")
    endif()
    target_compile_options(coeus_options INTERFACE -fsanitize=fuzzer-no-link)
    set_source_files_properties(${PROJECT_SOURCE_DIR}/src/file/toml.cpp PROPERTIES COMPILE_OPTIONS
        -fsanitize-ignorelist=${PROJECT_SOURCE_DIR}/tests/fuzz/not_ours.txt)
endif()
