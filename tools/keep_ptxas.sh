#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Starts nvcc: keep_ptxas.sh NVCC OPTIONS. What ptxas reports about kernels (-Xptxas=-v) is kept in OBJECT.ptxas, which
# tools/kernel_resources.py reads, instead of being printed.
object=
previous=
for option; do
    [ "$previous" != -o ] || object=$option
    previous=$option
done
[ -n "$object" ] || exec "$@"
code=0
"$@" 2>"$object.messages" || code=$?
reports='^ptxas info\|^    [0-9]* bytes stack frame'
grep "$reports" "$object.messages" >"$object.ptxas"
grep -v "$reports" "$object.messages" >&2
rm -f "$object.messages"
exit $code
