# SPDX-License-Identifier: Apache-2.0
# Writes the man page and completions that PROGRAM prints into FOLDER. They are left out if PROGRAM does not run here
# because it was built for another CPU.
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
