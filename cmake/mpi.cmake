# SPDX-License-Identifier: Apache-2.0
# Whose MPI this is, from its mpi.h: COEUS_MPI, as "Open MPI 4.1.4", and COEUS_MPIRUN_FLAGS, the options by which its
# mpirun starts more ranks than cores. Ends where a library or the launcher comes from another MPI.

# Sets `result` to the values of such macros of a header, joined by dots; "" where there are none.
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

set(COEUS_MPI "MPI ${MPI_CXX_VERSION}")
set(coeus_open_mpi OFF)
foreach(folder ${MPI_CXX_INCLUDE_DIRS})
    coeus_header_version(open_mpi ${folder}/mpi.h OMPI_MAJOR_VERSION OMPI_MINOR_VERSION OMPI_RELEASE_VERSION)
    coeus_header_version(mpich ${folder}/mpi.h MPICH_VERSION)
    if(open_mpi)
        set(COEUS_MPI "Open MPI ${open_mpi}")
        set(coeus_open_mpi ON)
    elseif(mpich)
        set(COEUS_MPI "MPICH ${mpich}")
    endif()
endforeach()
if(NOT coeus_open_mpi)
    message(STATUS "${COEUS_MPI}: everything is built. What is Open MPI's own (the settings OMPI_*, make bundle, "
        "srun --mpi=pmix) is not there; doc/cluster.md, \"MPICH\", says what takes its place")
endif()

# the libmpi*.so that a file asks for
function(coeus_mpi_of result file)
    set(${result} "" PARENT_SCOPE)
    if(CMAKE_READELF AND EXISTS ${file})
        execute_process(COMMAND ${CMAKE_READELF} -d ${file} OUTPUT_VARIABLE needed ERROR_QUIET)
        if(needed MATCHES "NEEDED[^\n]*\\[(libmpi(ch)?\\.so[^]]*)\\]")
            set(${result} "${CMAKE_MATCH_1}" PARENT_SCOPE)
        endif()
    endif()
endfunction()

# coeus_require_same_mpi(WHAT LIBRARY): a library that was built with another MPI is named
function(coeus_require_same_mpi what library)
    coeus_mpi_of(wanted ${library})
    if(wanted)
        foreach(own ${MPI_CXX_LIBRARIES})
            file(REAL_PATH ${own} own)
            get_filename_component(own ${own} NAME)
            list(APPEND names ${own})
            # libmpi.so.40.30.4 is asked for as libmpi.so.40
            string(FIND "${own}" "${wanted}" at)
            if(at EQUAL 0)
                return()
            endif()
        endforeach()
        list(JOIN names ", " names)
        message(FATAL_ERROR "${what} (${library}) was built with another MPI: it needs ${wanted}, but ${MPI_CXX_COMPILER} is "
            "of ${COEUS_MPI} (${names}). Name the MPI of ${what} by -DMPI_CXX_COMPILER=..., on Debian mpicxx.openmpi or "
            "mpicxx.mpich; or install ${what} for ${COEUS_MPI}.")
    endif()
endfunction()

# the tests and `make run` start ranks by mpirun; a cluster may have srun alone
find_program(COEUS_MPIRUN mpirun)
if(COEUS_MPIRUN)
    execute_process(COMMAND ${COEUS_MPIRUN} --version OUTPUT_VARIABLE version ERROR_VARIABLE version)
    if(version MATCHES "Open MPI" AND NOT coeus_open_mpi OR NOT version MATCHES "Open MPI" AND coeus_open_mpi)
        string(REGEX MATCH "[^\n]*" version "${version}")
        message(WARNING "${COEUS_MPIRUN} (${version}) is not that of ${COEUS_MPI}, for which Coeus is built: it would start "
            "ranks that do not find each other. Put the mpirun of ${COEUS_MPI} first in the PATH (on Debian: "
            "update-alternatives --config mpirun).")
    endif()
endif()
execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tools/mpirun_flags.sh OUTPUT_VARIABLE COEUS_MPIRUN_FLAGS
    OUTPUT_STRIP_TRAILING_WHITESPACE)
