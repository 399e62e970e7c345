# SPDX-License-Identifier: Apache-2.0
# `cmake --install` copies three components:
#   program     the program, its man page and completions, decks and job scripts
#   library     one archive, headers, the CMake package Coeus and coeus.pc
#   documents   documents and examples
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# the program finds the libraries that it was built with, even if they are in a user's folder
set_target_properties(coeus_program PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS coeus_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)

# The program itself writes its man page and completions. They are left out if it does not run on this machine.
set(help_files ${PROJECT_BINARY_DIR}/help)
add_custom_command(OUTPUT ${help_files}/coeus.1 ${help_files}/coeus ${help_files}/_coeus
    COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:coeus_program> -DFOLDER=${help_files}
        -P ${PROJECT_SOURCE_DIR}/cmake/write_help.cmake
    DEPENDS coeus_program ${PROJECT_SOURCE_DIR}/cmake/write_help.cmake VERBATIM)
add_custom_target(coeus_help ALL DEPENDS ${help_files}/coeus.1)
install(FILES ${help_files}/coeus.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program OPTIONAL)
install(FILES ${help_files}/coeus DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT program
    OPTIONAL)
install(FILES ${help_files}/_coeus DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT program OPTIONAL)

# The folders have the same layout as in the source tree, so that links between documents work; share/doc/coeus contains
# links to them.
set(data ${CMAKE_INSTALL_DATADIR}/coeus)
set(program_data inputs jobscripts)
set(documents doc examples packaging README.md CHANGELOG.md CONTRIBUTING.md LICENSE)
foreach(part program_data documents)
    set(component documents)
    if(part STREQUAL program_data)
        set(component program)
    endif()
    foreach(name ${${part}})
        if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${name})
            install(DIRECTORY ${PROJECT_SOURCE_DIR}/${name} DESTINATION ${data} USE_SOURCE_PERMISSIONS COMPONENT ${component})
        else()
            install(FILES ${PROJECT_SOURCE_DIR}/${name} DESTINATION ${data} COMPONENT ${component})
        endif()
    endforeach()
endforeach()
install(PROGRAMS ${PROJECT_SOURCE_DIR}/tools/mpirun_command.sh DESTINATION ${data}/tools COMPONENT documents)
file(RELATIVE_PATH to_data /${CMAKE_INSTALL_DOCDIR} /${data})
foreach(name ${program_data} ${documents})
    set(link ${PROJECT_BINARY_DIR}/doc_links/${name})
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/doc_links)
    file(CREATE_LINK ${to_data}/${name} ${link} SYMBOLIC)
    install(FILES ${link} DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT documents)
endforeach()

if(COEUS_LIBRARIES_OF)
    return() # the folder with the libraries installs them
endif()

# One archive of all folders of src.
get_property(libraries GLOBAL PROPERTY COEUS_LIBRARIES)
list(APPEND libraries coeus_jobscripts coeus_built_with)
list(TRANSFORM libraries REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
add_library(coeus_archive STATIC ${objects})
set_target_properties(coeus_archive PROPERTIES OUTPUT_NAME coeus LINKER_LANGUAGE CXX)
install(TARGETS coeus_archive ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/coeus DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)
if(COEUS_CUDA)
    install(TARGETS coeus_cuda ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
endif()

# coeus_link_items(RESULT LIBRARY...): sets RESULT to the files and flags that link these libraries. An archive needs
# exactly the libraries that it was built with, so programs that use it do not search for others.
function(coeus_link_items result)
    set(items "")
    foreach(library ${ARGN})
        string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" library "${library}")
        if(NOT TARGET ${library})
            string(REGEX REPLACE "^([^-/].*)$" "-l\\1" library "${library}")
            list(APPEND items ${library})
            continue()
        endif()
        get_target_property(type ${library} TYPE)
        get_target_property(options ${library} INTERFACE_LINK_OPTIONS)
        if(options)
            list(TRANSFORM options REPLACE "^SHELL:" "")
            list(APPEND items ${options})
        endif()
        if(NOT type STREQUAL INTERFACE_LIBRARY)
            get_target_property(kinds ${library} IMPORTED_CONFIGURATIONS)
            foreach(location IMPORTED_LOCATION IMPORTED_LOCATION_RELEASE IMPORTED_LOCATION_${kinds})
                get_target_property(file ${library} ${location})
                if(file)
                    # the name libfmt.so stays valid if 9.1.0 becomes 9.1.1
                    string(REGEX REPLACE "[.]so[.0-9]+$" ".so" plain ${file})
                    if(EXISTS ${plain})
                        set(file ${plain})
                    endif()
                    list(APPEND items ${file})
                    break()
                endif()
            endforeach()
        endif()
        get_target_property(others ${library} INTERFACE_LINK_LIBRARIES)
        if(others)
            coeus_link_items(found ${others})
            list(APPEND items ${found})
        endif()
    endforeach()
    # an archive must come before the libraries that it needs
    list(REVERSE items)
    list(REMOVE_DUPLICATES items)
    list(REVERSE items)
    set(${result} "${items}" PARENT_SCOPE)
endfunction()

get_property(dependencies GLOBAL PROPERTY COEUS_DEPENDENCIES)
list(REMOVE_DUPLICATES dependencies)
coeus_link_items(coeus_link_items ${dependencies})
# fmt is the only other library that public headers include
set(coeus_fmt_folders "")
set(coeus_fmt_definitions "")
get_target_property(folders fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
get_target_property(definitions fmt::fmt INTERFACE_COMPILE_DEFINITIONS)
if(folders)
    list(REMOVE_ITEM folders ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES} /usr/include)
    set(coeus_fmt_folders ${folders})
endif()
if(definitions)
    set(coeus_fmt_definitions ${definitions})
endif()

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Coeus)
set(INCLUDE_FOLDER ${CMAKE_INSTALL_INCLUDEDIR})
set(LIBRARY_FOLDER ${CMAKE_INSTALL_LIBDIR})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/CoeusConfig.cmake.in ${PROJECT_BINARY_DIR}/CoeusConfig.cmake
    INSTALL_DESTINATION ${package} PATH_VARS INCLUDE_FOLDER LIBRARY_FOLDER)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/CoeusConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/CoeusConfig.cmake ${PROJECT_BINARY_DIR}/CoeusConfigVersion.cmake
    DESTINATION ${package} COMPONENT library)

# the same for pkg-config. The prefix is found from the folder of this file, since it is known only at the installation
file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" to_prefix ${to_prefix})
list(TRANSFORM coeus_fmt_folders PREPEND -I OUTPUT_VARIABLE folders)
list(TRANSFORM coeus_fmt_definitions PREPEND -D OUTPUT_VARIABLE definitions)
list(JOIN folders " " folders)
list(JOIN definitions " " definitions)
set(libs "-rdynamic -L\${libdir}")
set(items ${coeus_link_items})
if(COEUS_CUDA)
    string(APPEND libs " -Wl,--whole-archive -lcoeus_cuda -Wl,--no-whole-archive")
    coeus_link_items(found CUDA::cudart CUDA::cublasLt)
    list(APPEND items ${found})
endif()
list(JOIN items " " items)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/coeus.pc @ONLY CONTENT [=[
prefix=${pcfiledir}/@to_prefix@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: Coeus
Description: pre-training of large language models on HPC clusters, as a library
Version: @PROJECT_VERSION@
Cflags: -std=c++20 -I${includedir} @folders@ @definitions@
Libs: @libs@ -lcoeus @items@
]=])
install(FILES ${PROJECT_BINARY_DIR}/coeus.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
