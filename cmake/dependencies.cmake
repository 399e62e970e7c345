# SPDX-License-Identifier: Apache-2.0
# Finds every library that Coeus uses. If one is missing, the message names its Debian package, its Spack package and a
# usual module name.

function(coeus_missing what debian spack module)
    message(FATAL_ERROR
        "Coeus needs ${what}, which was not found.\n"
        "  Debian: apt-get install ${debian}\n"
        "  Spack:  spack install ${spack}\n"
        "  Modules: module load ${module}\n"
        "  `make deps` installs everything on Debian 12 and 13.")
endfunction()

# coeus_require_version(WHAT FOUND NEEDED) fails if a version is too old; the message names both versions
function(coeus_require_version what found needed)
    if("${found}" STREQUAL "")
        message(FATAL_ERROR "${what}: its version was not found. Coeus needs ${needed} or newer.")
    elseif(found VERSION_LESS needed)
        message(FATAL_ERROR "${what} ${found}, which is too old: Coeus needs ${needed} or newer. packaging/README.md says how "
            "to get a newer version on a cluster without root (modules, Spack, a container).")
    endif()
endfunction()

if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    coeus_require_version("The compiler is GCC" "${CMAKE_CXX_COMPILER_VERSION}" 11)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    coeus_require_version("The compiler is Clang" "${CMAKE_CXX_COMPILER_VERSION}" 14)
else()
    message(WARNING "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}: Coeus has been tried only with GCC and Clang")
endif()

find_package(Threads REQUIRED)

include(${CMAKE_CURRENT_LIST_DIR}/mpi.cmake)

find_package(OpenMP QUIET COMPONENTS CXX)
if(NOT OpenMP_CXX_FOUND)
    coeus_missing("OpenMP" g++ gcc gcc)
endif()

set(HDF5_PREFER_PARALLEL ON)
find_package(HDF5 QUIET COMPONENTS C)
if(NOT HDF5_FOUND OR NOT HDF5_IS_PARALLEL)
    set(package libhdf5-openmpi-dev)
    if(NOT coeus_open_mpi)
        set(package libhdf5-mpich-dev)
    endif()
    coeus_missing("parallel HDF5 (for ${coeus_mpi_found})" ${package} "hdf5+mpi" hdf5-mpi)
endif()
coeus_require_version("This is HDF5" "${HDF5_VERSION}" 1.10)
list(GET HDF5_LIBRARIES 0 library)
coeus_require_same_mpi("HDF5" ${library})
add_library(coeus_libhdf5 INTERFACE)
target_include_directories(coeus_libhdf5 SYSTEM INTERFACE ${HDF5_INCLUDE_DIRS})
target_link_libraries(coeus_libhdf5 INTERFACE ${HDF5_LIBRARIES} MPI::MPI_CXX)

find_package(Boost QUIET COMPONENTS program_options context)
if(NOT Boost_FOUND)
    coeus_missing("Boost (program_options and context)" "libboost-program-options-dev libboost-context-dev"
        "boost+program_options+context" boost)
endif()

# for libraries that have no CMake package on Debian 12: finds the header and the library
function(coeus_find target header library what debian spack module)
    find_path(${target}_INCLUDE_DIR NAMES ${header} PATH_SUFFIXES openblas)
    if(library)
        find_library(${target}_LIBRARY ${library})
    endif()
    if(NOT ${target}_INCLUDE_DIR OR (library AND NOT ${target}_LIBRARY))
        coeus_missing("${what}" ${debian} ${spack} ${module})
    endif()
    add_library(${target} INTERFACE)
    target_include_directories(${target} SYSTEM INTERFACE ${${target}_INCLUDE_DIR})
    if(library)
        target_link_libraries(${target} INTERFACE ${${target}_LIBRARY})
    endif()
endfunction()

# Finds a library by its CMake package, or else only by its headers, which users can put into a folder of their own.
macro(coeus_find_headers package header what debian spack module)
    find_package(${package} QUIET)
    if(NOT ${package}_FOUND)
        coeus_find(coeus_${package} ${header} "" "${what}" ${debian} ${spack} ${module})
        add_library(${package}::${package} ALIAS coeus_${package})
        set(${package}_DIR ${coeus_${package}_INCLUDE_DIR})
    endif()
endmacro()

coeus_find_headers(fmt fmt/core.h fmt libfmt-dev fmt fmt)
if(TARGET coeus_fmt)
    target_compile_definitions(coeus_fmt INTERFACE FMT_HEADER_ONLY=1)
endif()
coeus_find_headers(spdlog spdlog/spdlog.h spdlog libspdlog-dev spdlog spdlog)
if(TARGET coeus_spdlog)
    target_compile_definitions(coeus_spdlog INTERFACE SPDLOG_FMT_EXTERNAL=1)
    target_link_libraries(coeus_spdlog INTERFACE fmt::fmt)
endif()
coeus_find_headers(nlohmann_json nlohmann/json.hpp nlohmann-json nlohmann-json3-dev nlohmann-json nlohmann-json)
coeus_find(coeus_onednn oneapi/dnnl/dnnl.hpp dnnl "oneDNN" libdnnl-dev onednn onednn)
# Debian calls this header cblas-openblas.h, other systems cblas.h
coeus_find(coeus_openblas "cblas-openblas.h;cblas.h" openblas "OpenBLAS" libopenblas-openmp-dev "openblas threads=openmp" openblas)
coeus_find(coeus_tomlplusplus toml++/toml.h "" "toml++" libtomlplusplus-dev tomlplusplus tomlplusplus)
coeus_find(coeus_hwloc hwloc.h hwloc "hwloc" libhwloc-dev hwloc hwloc)
coeus_find(coeus_pcre2 pcre2.h pcre2-8 "PCRE2" libpcre2-dev pcre2 pcre2)
coeus_find(coeus_utf8proc utf8proc.h utf8proc "utf8proc" libutf8proc-dev utf8proc utf8proc)
coeus_find(coeus_sentencepiece sentencepiece_processor.h sentencepiece "SentencePiece" libsentencepiece-dev sentencepiece sentencepiece)
coeus_find(coeus_xxhash xxhash.h xxhash "xxHash" libxxhash-dev xxhash xxhash)
coeus_find(coeus_zlib zlib.h z "zlib" zlib1g-dev zlib zlib)
coeus_find(coeus_zstd zstd.h zstd "Zstandard" libzstd-dev zstd zstd)
