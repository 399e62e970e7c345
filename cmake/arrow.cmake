# SPDX-License-Identifier: Apache-2.0
# Finds Arrow's C++ library with Parquet, which is not required: without it, Parquet files are refused with a line that
# converts them. COEUS_ARROW is
#   auto   a CMake package of Arrow (an installed package, or a loaded module), or the library in a pyarrow wheel of
#          build/venv-parquet or of the python3 in the PATH
#   PATH   the folder of a pyarrow package, or the prefix of an installation
#   off    nothing
# Sets coeus_arrow_libraries (empty if there is none) and coeus_arrow_include.
set(COEUS_ARROW auto CACHE STRING "Arrow's C++ library, to read Parquet: auto, off, the folder of a pyarrow package, or a prefix")
set(coeus_arrow_libraries "")
set(coeus_arrow_include "")

# Sets the variables if a folder is a pyarrow package (headers in include, versioned libraries beside it) or a prefix.
function(coeus_look_for_arrow folder)
    if(NOT EXISTS "${folder}/include/parquet/arrow/reader.h")
        return()
    endif()
    foreach(name parquet arrow)
        file(GLOB found "${folder}/lib${name}.so" "${folder}/lib${name}.so.[0-9]*" "${folder}/lib/lib${name}.so"
            "${folder}/lib/*/lib${name}.so" "${folder}/lib64/lib${name}.so")
        if(NOT found)
            return()
        endif()
        list(GET found 0 first)
        list(APPEND libraries "${first}")
    endforeach()
    set(coeus_arrow_libraries "${libraries}" PARENT_SCOPE)
    set(coeus_arrow_include "${folder}/include" PARENT_SCOPE)
endfunction()

if(COEUS_ARROW STREQUAL auto)
    find_package(Arrow QUIET)
    find_package(Parquet QUIET)
    if(TARGET Arrow::arrow_shared AND TARGET Parquet::parquet_shared)
        set(coeus_arrow_libraries Parquet::parquet_shared Arrow::arrow_shared)
        get_target_property(coeus_arrow_include Arrow::arrow_shared INTERFACE_INCLUDE_DIRECTORIES)
    else()
        foreach(python ${PROJECT_BINARY_DIR}/venv-parquet/bin/python python3)
            execute_process(COMMAND ${python} -c "import pyarrow; print(pyarrow.get_include()[:-len('/include')])"
                OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
            if(NOT coeus_arrow_libraries AND "${failed}" STREQUAL 0)
                coeus_look_for_arrow("${folder}")
            endif()
        endforeach()
    endif()
elseif(NOT COEUS_ARROW STREQUAL off)
    coeus_look_for_arrow("${COEUS_ARROW}")
    if(NOT coeus_arrow_libraries)
        message(FATAL_ERROR "COEUS_ARROW=${COEUS_ARROW}: this folder has no include/parquet/arrow/reader.h, libparquet and "
            "libarrow. It is auto, off, the folder of a pyarrow package (python3 -c 'import pyarrow; "
            "print(pyarrow.__path__[0])'), or the prefix of an installation.")
    endif()
endif()

# a version whose functions differ, or a library that this compiler cannot link, is as if it were absent
if(coeus_arrow_libraries)
    file(WRITE ${PROJECT_BINARY_DIR}/CMakeFiles/arrow.cpp "
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
int main() {
    parquet::arrow::FileReaderBuilder builder;
    auto reader = builder.Build();
    return reader.ok() && (*reader)->GetRecordBatchReader({0}, {0}).ok();
}
")
    try_compile(coeus_arrow_works ${PROJECT_BINARY_DIR}/CMakeFiles/arrow ${PROJECT_BINARY_DIR}/CMakeFiles/arrow.cpp
        CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${coeus_arrow_include}" LINK_LIBRARIES ${coeus_arrow_libraries}
        CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON OUTPUT_VARIABLE output)
    if(coeus_arrow_works)
        message(STATUS "Parquet: read by ${coeus_arrow_libraries}")
    elseif(COEUS_ARROW STREQUAL auto)
        message(STATUS "Parquet: ${coeus_arrow_libraries} cannot be used, so such files are not read")
        set(coeus_arrow_libraries "")
    else()
        message(FATAL_ERROR "COEUS_ARROW=${COEUS_ARROW}: this version of Arrow cannot be used:\n${output}")
    endif()
endif()

# empty without Arrow
add_library(coeus_arrow INTERFACE)
target_link_libraries(coeus_arrow INTERFACE ${coeus_arrow_libraries})

# one of two files is compiled
set(arrow_source ${PROJECT_SOURCE_DIR}/src/data/parquet_arrow.cpp)
set(other_source ${PROJECT_SOURCE_DIR}/src/data/parquet_none.cpp)
if(coeus_arrow_libraries)
    set_source_files_properties(${other_source} PROPERTIES HEADER_FILE_ONLY ON)
    set(options "")
    foreach(folder ${coeus_arrow_include})
        list(APPEND options "-isystem${folder}")
    endforeach()
    set_source_files_properties(${arrow_source} PROPERTIES COMPILE_OPTIONS "${options}" SKIP_UNITY_BUILD_INCLUSION ON)
else()
    set_source_files_properties(${arrow_source} PROPERTIES HEADER_FILE_ONLY ON)
endif()
