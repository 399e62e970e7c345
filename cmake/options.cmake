# SPDX-License-Identifier: Apache-2.0
# The interface library coeus_options: the compiler options for our own code.
add_library(coeus_options INTERFACE)
target_include_directories(coeus_options INTERFACE ${PROJECT_SOURCE_DIR}/include)
set(options
    -Wall -Wextra -Wpedantic
    # designated initialisers leave the other members at their defaults on purpose
    -Wno-missing-field-initializers
    # vectors wider than the CPU's registers never cross a library's boundary
    -Wno-psabi
    # no -ffast-math: it would break the checks for NaN; these two only drop errno and traps
    -fno-math-errno -fno-trapping-math
    # a target may have a COEUS_ARCH of its own
    -march=$<IF:$<BOOL:$<TARGET_PROPERTY:COEUS_ARCH>>,$<TARGET_PROPERTY:COEUS_ARCH>,${COEUS_ARCH}>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    list(APPEND options
        # not with Clang, for which every constant shadows one of the same name in another file of the batch
        -Wshadow
        # GCC 12 gives false warnings inside std::string at -O3 (GCC bug 105651)
        -Wno-restrict
        # collecting garbage takes a tenth of the compiler's time; with 400 MB before the first time, 100 MB more memory
        --param=ggc-min-heapsize=400000
        # GCC takes the files of a batch (COEUS_UNITY_BATCH) for headers and would warn of each anonymous namespace;
        # tools/check_files.py finds anonymous namespaces in real headers
        -Wno-subobject-linkage)
else()
    list(APPEND options
        # Clang would warn of each loop that it does not vectorise as asked
        -Wno-pass-failed
        # Clang 16 and newer warns of a function that GCC 12's std::stable_sort calls
        -Wno-deprecated-declarations)
    # Clang 16 and 17 recurse endlessly on vectors of bfloat16 if they may use AVX512-BF16
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 16
       AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 18)
        list(APPEND options -mno-avx512bf16)
        message(STATUS "Clang ${CMAKE_CXX_COMPILER_VERSION} crashes on AVX512-BF16: Coeus is built without it, so its matrix products in bfloat16 are slower")
    endif()
    # Clang 14 lacks built-in functions that the headers of GCC 12 use
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
# objects contain paths relative to this folder, so that those of two clones are the same (tools/compiler_cache.sh). It
# is not in `options`, which `coeus info --build` prints
target_compile_options(coeus_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>")
# tests/CMakeLists.txt links only the functions that a program uses
if(NOT COEUS_SANITIZE AND NOT COEUS_FUZZ)
    target_compile_options(coeus_options INTERFACE
        "$<$<COMPILE_LANGUAGE:CXX>:-ffunction-sections;-fdata-sections>")
endif()
target_compile_definitions(coeus_options INTERFACE $<$<CONFIG:Debug>:COEUS_DEBUG>)
# -O3 for full vectorisation; Debug builds are used with sanitizers, and their tests must not take minutes
set(CMAKE_CXX_FLAGS_RELEASE "-O3")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")

if(COEUS_SANITIZE)
    target_compile_options(coeus_options INTERFACE -fsanitize=${COEUS_SANITIZE} -fno-omit-frame-pointer
        -fno-sanitize-recover=all)
    if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
        # GCC defines these macros by itself
        foreach(kind address thread)
            string(TOUPPER __SANITIZE_${kind}__ macro)
            if(COEUS_SANITIZE MATCHES ${kind})
                target_compile_definitions(coeus_options INTERFACE ${macro})
            endif()
        endforeach()
        # functions of libraries that are loaded have our own types in the place of the library's
        target_compile_options(coeus_options INTERFACE -fno-sanitize=function)
    elseif(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
        # GCC 12 reports false positives inside libstdc++ and fmt once sanitizers change inlining
        target_compile_options(coeus_options INTERFACE -Wno-error=maybe-uninitialized -Wno-error=stringop-overflow)
    endif()
    target_link_options(coeus_options INTERFACE -fsanitize=${COEUS_SANITIZE})
    # optimising the code that sanitizers add takes longer than the rest of a build; only for fuzzers, which run longer
    # than that, it pays
    if(NOT COEUS_FUZZ)
        set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1")
        # a quarter of the code of all checks; the address sanitizer finds null and wild pointers when they are used
        target_compile_options(coeus_options INTERFACE -fno-sanitize=null,vptr,pointer-overflow)
        # otherwise half of each program would be relocations of the sanitizers' messages, processed at each start
        target_link_options(coeus_options INTERFACE -no-pie)
    endif()
endif()
# lld takes a sixth of the time of the default linker, gold half of it. They link the many programs of the tests; coeus
# itself is linked with the default, as on users' systems. gold warns of symbols in Clang's sanitizers.
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=gold COEUS_HAS_GOLD)
check_linker_flag(CXX -fuse-ld=lld COEUS_HAS_LLD)
# for a target in which the tests with sanitizers spend most of their time
function(coeus_optimise_sanitized target)
    if(COEUS_SANITIZE)
        target_compile_options(${target} PRIVATE -O1)
    endif()
endfunction()

if(COEUS_FUZZ)
    if(NOT CMAKE_CXX_COMPILER_ID STREQUAL Clang)
        message(FATAL_ERROR "COEUS_FUZZ = ON needs Clang for its libFuzzer, but the compiler is ${CMAKE_CXX_COMPILER}. "
            "Call `make fuzz`, which chooses Clang")
    endif()
    target_compile_options(coeus_options INTERFACE -fsanitize=fuzzer-no-link)
    set_source_files_properties(${PROJECT_SOURCE_DIR}/src/file/toml.cpp PROPERTIES COMPILE_OPTIONS
        -fsanitize-ignorelist=${PROJECT_SOURCE_DIR}/tests/fuzz/not_ours.txt)
endif()
