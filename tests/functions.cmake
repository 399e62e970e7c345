# SPDX-License-Identifier: Apache-2.0
# coeus_test, coeus_mpi_test, coeus_add_test, coeus_checked_header: add tests, with their labels, time limits and costs.

# Test cases take longer to compile than to run; the code that they test is fully optimised. Under sanitizers, they are
# compiled without the check of alignment. The other checks stay, since the linker may take a case's copy of an inline
# function for the libraries too. A library gives this option, since those of libraries come last, and the last one
# counts.
set(coeus_case_options -O0)
add_library(coeus_unchecked_cases INTERFACE)
if(COEUS_SANITIZE)
    target_compile_options(coeus_unchecked_cases INTERFACE -fno-sanitize=alignment)
endif()

# Tests of higher cost start first: those with MPI, since they find most bugs, and those that take long, since otherwise
# the other cores would wait for them at the end.
set(coeus_cost_mpi 100)
set(coeus_cost_emulated_gpu 90)
set(coeus_cost_slurm 80)
set(coeus_cost_tools 70)
set(coeus_cost_program 60)
foreach(label unit golden fuzz soak)
    set(coeus_cost_${label} 0)
endforeach()

# Sets `result` to the label of all tests of a folder. The tests on the emulated GPU take long and have their own label.
function(coeus_label result folder)
    if(folder MATCHES "^(unit/cuda|gpu/|mpi/nccl)")
        set(${result} emulated_gpu PARENT_SCOPE)
    else()
        string(REGEX REPLACE "/.*" "" label ${folder})
        set(${result} ${label} PARENT_SCOPE)
    endif()
endfunction()

# from 3.6 on Catch2 would otherwise set its own exit code for skipped tests
set(coeus_own_skips "")
if(Catch2_VERSION VERSION_GREATER_EQUAL 3.6)
    set(coeus_own_skips SKIP_IS_FAILURE)
endif()
# SKIP_RETURN_CODE: the exit code of a test of which everything was skipped (support/skip.hpp, tools/unittests.py)
set(coeus_properties SKIP_RETURN_CODE 77)
# time limit of the tests of `make soak`, in seconds
set(coeus_soak_test 172800)
set(coeus_mpi_environment OMPI_MCA_mpi_yield_when_idle=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    OMP_NUM_THREADS=1)

# The share of the machine that a test takes (ctest's PROCESSORS) is counted in sixths of a core: one if the test mostly
# sleeps, two if it mostly waits for programs that start and end, six for each core that it keeps busy. tools/test.sh
# starts as many tests as the machine has room for.

# coeus_add_test(NAME LABEL SECONDS SIXTHS COMMAND...)
function(coeus_add_test name label seconds sixths)
    if(label STREQUAL soak)
        set(configurations CONFIGURATIONS Soak)
    endif()
    add_test(NAME ${name} ${configurations} COMMAND ${ARGN})
    # tests that need most cores start first: while smaller ones run there is never room for them
    math(EXPR cost "${coeus_cost_${label}} + ${sixths} / 2")
    set_tests_properties(${name} PROPERTIES TIMEOUT ${seconds} PROCESSORS ${sixths} LABELS ${label}
        COST ${cost} ENVIRONMENT "${coeus_mpi_environment}" ${coeus_properties})
endfunction()

# coeus_test(NAME FOLDER SIXTHS [PREFIX text] [SLEEPING cases] [KERNELS]): tests in one process, with plain Catch2.
# PREFIX, by default the folder, begins the tests' names. The cases that match SLEEPING take one sixth. They wait for
# time-outs, so they may take long. KERNELS: the target coeus_kernel_tests builds it, which .ci/run needs only if a
# change reaches kernels.
function(coeus_test name folder sixths)
    cmake_parse_arguments(arg "KERNELS" "PREFIX;SLEEPING" "" ${ARGN})
    if(NOT arg_PREFIX)
        set(arg_PREFIX ${folder})
    endif()
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${coeus_tests_dir}/${folder}/*.cpp)
    add_executable(${name} ${sources})
    coeus_compile_in_batches(${name})
    target_link_libraries(${name} PRIVATE coeus_test_support coeus_unchecked_cases)
    target_compile_options(${name} PRIVATE ${coeus_case_options})
    if(arg_KERNELS)
        add_dependencies(coeus_kernel_tests ${name})
    else()
        add_dependencies(coeus_tests ${name})
        if(folder MATCHES "^unit/")
            add_dependencies(coeus_unit_tests ${name})
        endif()
    endif()
    coeus_label(label ${folder})
    set(discover TEST_PREFIX "${arg_PREFIX}:" DISCOVERY_MODE PRE_TEST ${coeus_own_skips} PROPERTIES LABELS ${label}
        COST ${coeus_cost_${label}} ENVIRONMENT OMP_NUM_THREADS=2 ${coeus_properties})
    if(arg_SLEEPING)
        catch_discover_tests(${name} TEST_SPEC ${arg_SLEEPING} ${discover} TIMEOUT ${coeus_long_test} PROCESSORS 1)
        set(awake TEST_SPEC "~[.]~${arg_SLEEPING}") # not those with a hidden tag
    endif()
    set(limit ${coeus_short_test})
    if(sixths EQUAL 1)
        set(limit ${coeus_long_test}) # all of them sleep
    endif()
    catch_discover_tests(${name} ${awake} ${discover} TIMEOUT ${limit} PROCESSORS ${sixths})
endfunction()

# coeus_mpi_test(NAME FOLDER RANKS...): one mpirun runs all cases for a number of ranks. It takes a core for each rank:
# ranks that wait for a rank without a core spin, so another test at the same time would make them several times slower.
# IN_PART: some of them run a part of their cases (support/part.hpp); `make soak` runs all.
separate_arguments(mpirun_flags UNIX_COMMAND "${coeus_mpirun_flags}")
set(coeus_mpirun ${coeus_tests_dir}/support/mpirun.sh $<TARGET_FILE:coeus_exits> ${COEUS_MPIRUN} ${mpirun_flags} -n)
cmake_host_system_information(RESULT coeus_cores QUERY NUMBER_OF_LOGICAL_CORES)
function(coeus_leave_out test why)
    set_tests_properties(${test} PROPERTIES DISABLED ON)
    add_test(NAME "${test} (left out)" COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${why}")
    set_tests_properties("${test} (left out)" PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped: " LABELS mpi)
endfunction()
function(coeus_mpi_test name folder)
    cmake_parse_arguments(arg "IN_PART" "" "" ${ARGN})
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${coeus_tests_dir}/${folder}/*.cpp)
    add_executable(${name} ${sources} ${coeus_tests_dir}/support/mpi_main.cpp)
    coeus_compile_in_batches(${name})
    target_link_libraries(${name} PRIVATE coeus_test_support coeus_unchecked_cases)
    target_compile_options(${name} PRIVATE ${coeus_case_options})
    add_dependencies(coeus_tests ${name})
    coeus_label(label ${folder})
    foreach(ranks ${arg_UNPARSED_ARGUMENTS})
        math(EXPR sixths "6 * ${ranks}")
        coeus_add_test("${folder}: ${ranks} ranks" ${label} ${coeus_long_test} ${sixths}
            ${coeus_mpirun} ${ranks} $<TARGET_FILE:${name}>)
        if(arg_IN_PART)
            coeus_add_test("soak: every case of ${folder} on ${ranks} ranks" soak ${coeus_soak_test} ${sixths}
                ${CMAKE_COMMAND} -E env COEUS_EVERY_CASE=1 ${coeus_mpirun} ${ranks} $<TARGET_FILE:${name}>)
            add_dependencies(coeus_soak_tests ${name})
        endif()
        # ranks of MPICH keep their core busy while they wait: 8 of them on 2 cores take a hundred times as long
        if(ranks GREATER 4 AND ranks GREATER coeus_cores AND NOT coeus_open_mpi)
            coeus_leave_out("${folder}: ${ranks} ranks" "${ranks} ranks of ${coeus_mpi_found} need ${ranks} cores")
        endif()
    endforeach()
endfunction()

# Checks our declarations of a library against the library's own header: `object` is built with the tests and compiles
# only if both agree. If the header is `missing` (its name), the test is skipped.
function(coeus_checked_header library object missing)
    set(name "headers: our declarations match those of ${library}")
    if(NOT missing)
        add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E md5sum $<TARGET_OBJECTS:${object}>)
    else()
        add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "skipped: there is no ${missing}")
        set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped: ")
    endif()
    set_tests_properties(${name} PROPERTIES LABELS tools)
endfunction()
