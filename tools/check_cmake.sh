#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ends with 2 if CMake is too old for CMakePresets.json, of which an old one says only that it cannot be read.
needed=3.25
found=$(cmake --version | sed -n 's/^cmake version \([0-9.]*\).*/\1/p')
if [ "$(printf '%s\n' "$needed" "$found" | sort -V | head -n 1)" != "$needed" ]; then
    echo "CMake $found is too old: Coeus needs $needed or newer. packaging/README.md says how a newer one comes onto a" \
        "cluster without root; python3 -m pip install cmake is another way." >&2
    exit 2
fi
