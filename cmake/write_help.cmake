# SPDX-License-Identifier: Apache-2.0
# Man page and completions, as PROGRAM prints them, in FOLDER. Without them if it does not run here, since it was built
# for another processor.
file(MAKE_DIRECTORY ${FOLDER})
foreach(pair "--man;coeus.1" "--bash;coeus" "--zsh;_coeus")
    list(GET pair 0 form)
    list(GET pair 1 file)
    execute_process(COMMAND ${PROGRAM} help ${form} OUTPUT_VARIABLE text RESULT_VARIABLE code ERROR_QUIET)
    if(NOT code EQUAL 0)
        message(WARNING "${PROGRAM} does not run on this machine (${code}): man page and completions are left out")
        return()
    endif()
    file(WRITE ${FOLDER}/${file} "${text}")
endforeach()
