#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of a build folder: test.sh FOLDER [ctest options]. Without options it runs the short list: all but
# those that tools/reach.py leaves out. At the end it prints ctest's summary, then how many tests were left out and
# skipped and why, and which took longer than tests/budget.txt says.
set -eu
cd "$(dirname "$0")/.."
folder=$1
shift

# Open MPI: may run as root, and ranks wait without spinning
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_pml=ob1        # the choice without a fast network; to search for one takes half the time of a start
export OMPI_MCA_reachable=weighted # otherwise version 5 asks for a route to its own address; there may be none
# on a CPU that is newer than OpenBLAS it takes its oldest kernels
! grep -qw avx2 /proc/cpuinfo || export OPENBLAS_CORETYPE=${OPENBLAS_CORETYPE:-Haswell}
export OMP_WAIT_POLICY=passive # idle threads sleep, since several tests run at the same time
export LSAN_OPTIONS="suppressions=$PWD/tools/leaks.txt:print_suppressions=0"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
rm -f "$folder/Testing/tests.xml" "$folder/Testing/LastTest.log" "$folder/Testing/left_out.txt"
code=0
COEUS_PART_SEED=$(tools/reach.py seed) # tests/support/part.hpp
export COEUS_PART_SEED
whole=
if [ $# = 0 ]; then
    whole=yes
    left_out=$(tools/reach.py left-out "$folder")
    set -- --exclude-regex "$left_out"
    mkdir -p "$folder/Testing"
    COEUS_HEADERS=$(cd "$folder/Testing" && pwd)/headers.txt # tools/check_headers.py
    export COEUS_HEADERS
    tools/reach.py headers >"$COEUS_HEADERS"
fi
# tests/functions.cmake counts the needs of a test in sixths of a core
ctest --test-dir "$folder" -j $((6 * $(nproc))) --output-on-failure --no-tests=error --output-junit Testing/tests.xml "$@" \
    </dev/null || code=$?
# whoever lets ctest list the tests overwrites its log, which skipped.py reads
cp "$folder/Testing/Temporary/LastTest.log" "$folder/Testing/" 2>/dev/null || :
if [ -n "$whole" ]; then
    tools/reach.py report "$folder" || : # the exit code is that of ctest
    tools/budget.py measured "$folder" || :
fi
python3 -B tools/skipped.py "$folder" || :
exit $code
