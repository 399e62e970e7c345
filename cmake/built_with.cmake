# SPDX-License-Identifier: Apache-2.0
# What this build is made with, as the library coeus_built_with, for `coeus info --build`.

# Sets `result` to the values of such macros of a header, joined by dots; "" if there are none.
function(coeus_header_version result header)
    set(parts "")
    if(EXISTS ${header})
        foreach(name ${ARGN})
            file(STRINGS ${header} line REGEX "^#[ \t]*define[ \t]+${name}[ \t]" LIMIT_COUNT 1)
            if(line MATCHES "${name}[ \t]+\"?[A-Za-z ]*([0-9][0-9A-Za-z.+-]*)")
                list(APPEND parts ${CMAKE_MATCH_1})
            endif()
        endforeach()
    endif()
    list(JOIN parts "." version)
    set(${result} "${version}" PARENT_SCOPE)
endfunction()

set(built_with "")
function(coeus_built_with name text)
    string(STRIP "${text}" text)
    set(built_with "${built_with}        {R\"(${name})\", R\"(${text})\"},\n" PARENT_SCOPE)
endfunction()

# A library of coeus_find(): its version by header and macros, and where it is.
macro(coeus_built_with_found name target header)
    set(folder ${${target}_INCLUDE_DIR})
    if(NOT EXISTS ${folder}/${header})
        set(folder ${folder}/${CMAKE_LIBRARY_ARCHITECTURE}) # Debian, of headers that differ by architecture
    endif()
    coeus_header_version(version ${folder}/${header} ${ARGN})
    if(${target}_LIBRARY)
        coeus_built_with(${name} "${version} ${${target}_LIBRARY}")
    else()
        coeus_built_with(${name} "${version} ${${target}_INCLUDE_DIR}")
    endif()
endmacro()

string(TOUPPER ${CMAKE_BUILD_TYPE} kind)
list(JOIN options " " own_options)
coeus_built_with("compiler" "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_CXX_COMPILER}")
coeus_built_with("build type" "${CMAKE_BUILD_TYPE}")
coeus_built_with("architecture" "${COEUS_ARCH}")
string(STRIP "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${kind}} ${own_options}" flags)
coeus_built_with("flags" "${flags}")
if(COEUS_SANITIZE)
    coeus_built_with("sanitizers" "${COEUS_SANITIZE}")
endif()

set(library "${MPI_CXX_COMPILER}")
if(MPI_CXX_LIBRARIES)
    list(GET MPI_CXX_LIBRARIES 0 library)
endif()
coeus_built_with("MPI" "${coeus_mpi_found} ${library}")
list(GET HDF5_LIBRARIES 0 library)
coeus_built_with("HDF5" "${HDF5_VERSION} ${library}")
coeus_built_with_found("oneDNN" coeus_onednn oneapi/dnnl/dnnl_version.h DNNL_VERSION_MAJOR DNNL_VERSION_MINOR
    DNNL_VERSION_PATCH)
coeus_built_with_found("OpenBLAS" coeus_openblas openblas_config.h OPENBLAS_VERSION)
coeus_built_with_found("hwloc" coeus_hwloc hwloc/autogen/config.h HWLOC_VERSION)
coeus_built_with_found("PCRE2" coeus_pcre2 pcre2.h PCRE2_MAJOR PCRE2_MINOR)
coeus_built_with_found("utf8proc" coeus_utf8proc utf8proc.h UTF8PROC_VERSION_MAJOR UTF8PROC_VERSION_MINOR
    UTF8PROC_VERSION_PATCH)
# its headers do not say
coeus_built_with("SentencePiece" "${coeus_sentencepiece_LIBRARY}")
coeus_built_with_found("xxHash" coeus_xxhash xxhash.h XXH_VERSION_MAJOR XXH_VERSION_MINOR XXH_VERSION_RELEASE)
coeus_built_with_found("zlib" coeus_zlib zlib.h ZLIB_VERSION)
coeus_built_with_found("Zstandard" coeus_zstd zstd.h ZSTD_VERSION_MAJOR ZSTD_VERSION_MINOR ZSTD_VERSION_RELEASE)
coeus_built_with_found("toml++" coeus_tomlplusplus toml++/impl/version.h TOML_LIB_MAJOR TOML_LIB_MINOR TOML_LIB_PATCH)
coeus_built_with("nlohmann-json" "${nlohmann_json_VERSION} ${nlohmann_json_DIR}")
coeus_built_with("fmt" "${fmt_VERSION} ${fmt_DIR}")
coeus_built_with("spdlog" "${spdlog_VERSION} ${spdlog_DIR}")
coeus_built_with("Boost" "${Boost_VERSION} ${Boost_DIR}")
if(COEUS_CUDA)
    list(JOIN COEUS_CUDA_ARCH " " gpus)
    coeus_built_with("CUDA" "${CUDAToolkit_VERSION} ${CMAKE_CUDA_COMPILER}, for ${gpus}")
else()
    coeus_built_with("CUDA" "none: the program computes on CPUs")
endif()

set(source ${PROJECT_BINARY_DIR}/built_with.cpp)
file(CONFIGURE OUTPUT ${source} CONTENT [=[
// made by cmake/built_with.cmake
#include "built_with.hpp"

namespace coeus::apps {

std::vector<std::pair<std::string, std::string>> built_with() {
    return {
@built_with@    };
}

}  // namespace coeus::apps
]=] @ONLY)
add_library(coeus_built_with STATIC ${source})
target_include_directories(coeus_built_with PRIVATE ${PROJECT_SOURCE_DIR}/src/apps)
target_link_libraries(coeus_built_with PRIVATE coeus_options)
