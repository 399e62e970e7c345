#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang.sh TOOL: prints the name that a tool of clang (clang-format, clang-tidy, clang++) has on this system: of version
# 14 (Debian 12), of version 19 (Debian 13), or without a number. Ends with exit code 1 if there is none.
for name in "$1-14" "$1-19" "$1"; do
    if command -v "$name" >/dev/null; then
        echo "$name"
        exit 0
    fi
done
echo "there is no $1 (make deps)" >&2
exit 1
