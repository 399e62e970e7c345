# SPDX-License-Identifier: Apache-2.0
# One static library per folder of src. A folder may use the folders named here and what those use; the order is
# the layering of doc/design.md, and tools/check_includes.py holds the includes to it.

function(coeus_library name)
    cmake_parse_arguments(arg "" "" "USES;LIBRARIES" ${ARGN})
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cpp)
    if(NOT sources)
        return()
    endif()
    add_library(coeus_${name} STATIC ${sources})
    target_link_libraries(coeus_${name} PUBLIC coeus_options PRIVATE ${arg_LIBRARIES})
    foreach(used ${arg_USES})
        if(TARGET coeus_${used})
            target_link_libraries(coeus_${name} PUBLIC coeus_${used})
        endif()
    endforeach()
    set_property(GLOBAL APPEND PROPERTY COEUS_LIBRARIES coeus_${name})
endfunction()

coeus_library(base LIBRARIES spdlog::spdlog)
target_link_libraries(coeus_base PUBLIC fmt::fmt)
set_source_files_properties(src/base/version.cpp PROPERTIES COMPILE_DEFINITIONS
    "COEUS_VERSION=\"${PROJECT_VERSION}\";COEUS_BUILD_TYPE=\"${CMAKE_BUILD_TYPE}\";COEUS_ARCH=\"${COEUS_ARCH}\"")
coeus_library(device USES base LIBRARIES coeus_hwloc OpenMP::OpenMP_CXX)
coeus_library(comm USES device base LIBRARIES MPI::MPI_CXX)
coeus_library(file USES comm device base LIBRARIES coeus_hdf5 nlohmann_json::nlohmann_json coeus_tomlplusplus coeus_xxhash
    coeus_zlib coeus_zstd)
coeus_library(kernels USES device base LIBRARIES coeus_onednn coeus_openblas OpenMP::OpenMP_CXX)
# the compiler fuses a sum's multiply-adds or not as its loop's shape suggests; here all shapes must agree in every bit
set_source_files_properties(src/kernels/cpu/thin_gemm.cpp PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
coeus_library(state USES comm kernels device base)
coeus_library(layers USES state comm kernels device base)
coeus_library(models USES layers state comm kernels device base)
coeus_library(pipeline USES models layers state comm kernels device base)
coeus_library(optim USES state comm kernels device base)
coeus_library(io USES state comm device file base)
coeus_library(data USES comm device file base LIBRARIES coeus_pcre2 coeus_utf8proc coeus_sentencepiece Threads::Threads)
coeus_library(plan USES pipeline models layers state comm kernels device base)
coeus_library(train USES plan pipeline optim data io models layers state comm kernels device file base
    LIBRARIES Boost::program_options Threads::Threads)

add_library(coeus INTERFACE)
get_property(libraries GLOBAL PROPERTY COEUS_LIBRARIES)
target_link_libraries(coeus INTERFACE ${libraries})

file(GLOB_RECURSE app_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/apps/*.cpp)
if(app_sources)
    add_executable(coeus_program ${app_sources})
    set_target_properties(coeus_program PROPERTIES OUTPUT_NAME coeus RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
    target_link_libraries(coeus_program PRIVATE coeus)
    install(TARGETS coeus_program RUNTIME DESTINATION bin)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/inputs DESTINATION share/coeus)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/doc/ DESTINATION share/doc/coeus)
    install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_SOURCE_DIR}/LICENSE
        DESTINATION share/doc/coeus OPTIONAL)
endif()
