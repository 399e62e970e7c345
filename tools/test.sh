#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of a build folder: test.sh FOLDER [ctest options]. Ends with ctest's summary, and with how many tests
# were skipped and why.
set -eu
cd "$(dirname "$0")/.."
folder=$1
shift

# Open MPI: as root, more ranks than cores, and ranks that wait without spinning
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_pml=ob1        # what is chosen without a fast network; to look for one takes half of a start
export OMPI_MCA_reachable=weighted # else version 5 asks routes, of which this machine's own address may have none
export OMP_WAIT_POLICY=passive # idle threads sleep, since tests run side by side
export LSAN_OPTIONS="suppressions=$PWD/tools/leaks.txt:print_suppressions=0"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
rm -f "$folder/Testing/tests.xml"
code=0
# tests/CMakeLists.txt counts in thirds of a core what a test takes
ctest --test-dir "$folder" -j $((3 * $(nproc))) --output-on-failure --no-tests=error --output-junit Testing/tests.xml "$@" \
    </dev/null || code=$?
python3 -B tools/skipped.py "$folder" || : # the code is that of the tests
exit $code
