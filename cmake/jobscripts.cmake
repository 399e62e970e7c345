# SPDX-License-Identifier: Apache-2.0
# The files of jobscripts as the library coeus_jobscripts, for `coeus sbatch`: a program alone, wherever it is
# installed, has them all.
file(GLOB_RECURSE scripts CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/jobscripts ${PROJECT_SOURCE_DIR}/jobscripts/*)
set(entries "")
foreach(script ${scripts})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/jobscripts/${script})
    file(READ ${PROJECT_SOURCE_DIR}/jobscripts/${script} content)
    if(NOT coeus_open_mpi) # Slurm starts the ranks of MPICH in another way
        string(REPLACE "--mpi=pmix" "--mpi=pmi2" content "${content}")
    endif()
    string(APPEND entries "    {\"${script}\", R\"script(${content})script\"},\n")
endforeach()
set(source ${PROJECT_BINARY_DIR}/jobscripts.cpp)
file(CONFIGURE OUTPUT ${source} CONTENT [=[
// made by cmake/jobscripts.cmake
#include "jobscripts.hpp"

namespace coeus::apps {

const std::map<std::string, std::string>& jobscripts() {
    static const std::map<std::string, std::string> all = {
@entries@    };
    return all;
}

}  // namespace coeus::apps
]=] @ONLY)
add_library(coeus_jobscripts STATIC ${source})
target_include_directories(coeus_jobscripts PRIVATE ${PROJECT_SOURCE_DIR}/src/apps)
target_link_libraries(coeus_jobscripts PRIVATE coeus_options)
