# SPDX-License-Identifier: Apache-2.0
# Finds MPI and sets coeus_mpi_found to its name, such as "Open MPI 4.1.4", and coeus_mpirun_flags to the options with
# which its mpirun (COEUS_MPIRUN) starts more ranks than cores. It fails if this is not the MPI that COEUS_MPI asks for
# or if a library was built with another MPI, and warns if the mpirun belongs to another MPI.

set(COEUS_MPI "" CACHE STRING
    "openmpi or mpich, on a Debian that has both; empty: the one whose mpicxx and mpirun come first in the PATH")
if(NOT COEUS_MPI MATCHES "^(openmpi|mpich)?$")
    message(FATAL_ERROR "COEUS_MPI = ${COEUS_MPI}: there is no such MPI; the choices are openmpi and mpich")
endif()
if(DEFINED CACHE{COEUS_MPI_BEFORE} AND NOT COEUS_MPI STREQUAL "$CACHE{COEUS_MPI_BEFORE}")
    set(before "COEUS_MPI=$CACHE{COEUS_MPI_BEFORE}")
    if("$CACHE{COEUS_MPI_BEFORE}" STREQUAL "")
        set(before "the MPI that comes first in the PATH")
    endif()
    set(asked ${COEUS_MPI})
    set(COEUS_MPI "$CACHE{COEUS_MPI_BEFORE}" CACHE STRING "" FORCE) # the folder keeps its MPI
    message(FATAL_ERROR "COEUS_MPI = ${asked}: the folder ${PROJECT_BINARY_DIR} was made with ${before}. Remove it and "
        "build again")
endif()
set(COEUS_MPI_BEFORE "${COEUS_MPI}" CACHE INTERNAL "COEUS_MPI when the folder was made")
if(COEUS_MPI)
    # these are Debian's names; on other systems the loaded modules decide
    find_program(MPI_CXX_COMPILER mpicxx.${COEUS_MPI})
    find_program(HDF5_C_COMPILER_EXECUTABLE h5pcc.${COEUS_MPI})
    find_program(COEUS_MPIRUN mpirun.${COEUS_MPI})
endif()
find_program(COEUS_MPIRUN mpirun)

find_package(MPI QUIET COMPONENTS CXX)
if(NOT MPI_CXX_FOUND)
    if(COEUS_MPI STREQUAL mpich)
        coeus_missing("MPI" "libmpich-dev mpich" mpich mpich)
    endif()
    coeus_missing("MPI" "libopenmpi-dev openmpi-bin" openmpi openmpi)
endif()
coeus_require_version("${MPI_CXX_COMPILER} implements MPI" "${MPI_CXX_VERSION}" 3.1)

# the compiler knows where mpi.h is, even if it is itself a wrapper (mpicxx, Cray's CC), for which FindMPI returns no
# folder
set(folders ${MPI_CXX_INCLUDE_DIRS})
list(TRANSFORM folders PREPEND -I)
execute_process(COMMAND ${CMAKE_CXX_COMPILER} ${folders} -x c++ -E -dM -include mpi.h /dev/null
    OUTPUT_VARIABLE macros ERROR_QUIET)
set(coeus_mpi_found "MPI ${MPI_CXX_VERSION}")
set(coeus_open_mpi OFF)
if(macros MATCHES "#define OMPI_MAJOR_VERSION ([0-9]+)")
    set(coeus_open_mpi ON)
    set(coeus_mpi_found "Open MPI ${CMAKE_MATCH_1}")
    foreach(part MINOR RELEASE)
        string(REGEX MATCH "#define OMPI_${part}_VERSION ([0-9]+)" unused "${macros}")
        string(APPEND coeus_mpi_found ".${CMAKE_MATCH_1}")
    endforeach()
elseif(macros MATCHES "#define MPICH_VERSION \"([^\"]*)\"")
    set(coeus_mpi_found "MPICH ${CMAKE_MATCH_1}")
endif()
if((COEUS_MPI STREQUAL openmpi AND NOT coeus_open_mpi) OR (COEUS_MPI STREQUAL mpich AND coeus_open_mpi))
    message(FATAL_ERROR "COEUS_MPI = ${COEUS_MPI}, but ${MPI_CXX_COMPILER} belongs to ${coeus_mpi_found}. Install that MPI, or put "
        "its mpicxx first in the PATH.")
endif()
if(NOT coeus_open_mpi)
    message(NOTICE "-- ${coeus_mpi_found}: settings OMPI_*, make bundle and srun --mpi=pmix belong to Open MPI; doc/cluster.md, "
        "\"MPICH\", says what to use instead")
endif()

# coeus_require_same_mpi(WHAT LIBRARY) fails if the library was built with another MPI; the message names both
function(coeus_require_same_mpi what library)
    if(NOT CMAKE_READELF OR NOT EXISTS ${library} OR NOT MPI_CXX_LIBRARIES)
        return()
    endif()
    execute_process(COMMAND ${CMAKE_READELF} -d ${library} OUTPUT_VARIABLE needed ERROR_QUIET)
    if(NOT needed MATCHES "NEEDED[^\n]*\\[(libmpi(ch)?\\.so[^]]*)\\]")
        return()
    endif()
    set(wanted ${CMAKE_MATCH_1})
    set(names "")
    foreach(own ${MPI_CXX_LIBRARIES})
        file(REAL_PATH ${own} own)
        get_filename_component(own ${own} NAME)
        list(APPEND names ${own})
        # a library that needs libmpi.so.40.30.4 names it libmpi.so.40
        string(FIND "${own}" "${wanted}" at)
        if(at EQUAL 0)
            return()
        endif()
    endforeach()
    list(JOIN names ", " names)
    message(FATAL_ERROR "${what} (${library}) was built with another MPI: it needs ${wanted}, but ${MPI_CXX_COMPILER} belongs to "
        "${coeus_mpi_found} (${names}). Install ${what} for ${coeus_mpi_found}; on a Debian that has both MPIs, "
        "choose one with COEUS_MPI=openmpi or COEUS_MPI=mpich.")
endfunction()

# the tests and `make run` start ranks with mpirun; some clusters have only srun
set(coeus_mpirun_flags "")
if(COEUS_MPIRUN)
    execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tools/mpirun_command.sh ${COEUS_MPIRUN}
        OUTPUT_VARIABLE coeus_mpirun_flags OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REGEX REPLACE "^[^ ]+ (.*)$" "\\1" coeus_mpirun_flags "${coeus_mpirun_flags}")
    if((coeus_mpirun_flags MATCHES oversubscribe AND NOT coeus_open_mpi) OR
        (NOT coeus_mpirun_flags MATCHES oversubscribe AND coeus_open_mpi))
        message(WARNING "${COEUS_MPIRUN} does not belong to ${coeus_mpi_found}, with which Coeus is built: it would start ranks "
            "that do not find each other. Put the right mpirun first in the PATH; on a Debian that has both MPIs, choose one "
            "with COEUS_MPI=openmpi or COEUS_MPI=mpich.")
    endif()
endif()
