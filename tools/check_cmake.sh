#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ends with exit code 2 if CMake is too old for CMakePresets.json. An old CMake would only report that it cannot read
# the file.
needed=3.25
found=$(cmake --version 2>/dev/null | sed -n 's/^cmake version \([0-9.]*\).*/\1/p')
newer="packaging/README.md says how to get a newer one on a cluster without root; python3 -m pip install cmake is another way."
if [ -z "$found" ]; then
    echo "There is no CMake: Coeus needs $needed or newer. $newer" >&2
    exit 2
fi
if [ "$(printf '%s\n' "$needed" "$found" | sort -V | head -n 1)" != "$needed" ]; then
    echo "CMake $found is too old: Coeus needs $needed or newer. $newer" >&2
    exit 2
fi
