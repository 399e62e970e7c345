#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang.sh TOOL: the name of a tool of clang (clang-format, clang-tidy, clang++) as this system has it: of version 14
# (Debian 12), of 19 (Debian 13), or without a number; ends with 1 if there is none.
for name in "$1-14" "$1-19" "$1"; do
    if command -v "$name" >/dev/null; then
        echo "$name"
        exit 0
    fi
done
echo "there is no $1 (make deps)" >&2
exit 1
