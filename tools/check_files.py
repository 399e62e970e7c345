#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks each file: the SPDX line, at most 600 lines, `#pragma once`, no anonymous namespace in a header, no path that
exists only on one machine, no trailing white space."""
import re
import sys

import sources

LONGEST = 600
SPDX = "SPDX-License-Identifier: Apache-2.0"
NO_COMMENTS = (".json", ".safetensors", ".h5", ".csv")  # formats that cannot contain the line
ANONYMOUS = re.compile(r"\s*namespace\s*\{")
MACHINE_PATH = re.compile(r"""(^|[\s"'=(:`])/(home|root|work|Users)/(?!someone)\w""")


def check(path, text):
    """Findings of one file, as "path:line: what"."""
    lines = text.splitlines()
    found = []
    head = lines[1] if lines and lines[0].startswith("#!") and len(lines) > 1 else (lines or [""])[0]
    if SPDX not in head and path.suffix not in NO_COMMENTS:
        found.append(f"{path}:1: the first line must contain '{SPDX}'")
    if path.suffix in (".hpp", ".cuh") and "#pragma once" not in lines:
        found.append(f"{path}:1: a header needs #pragma once")
    if path.suffix in (".hpp", ".cuh"):
        found += [f"{path}:{number}: an anonymous namespace in a header" for number, line in enumerate(lines, 1)
                  if ANONYMOUS.match(line)]
    if path.suffix in sources.CODE and len(lines) > LONGEST:
        found.append(f"{path}:{len(lines)}: more than {LONGEST} lines; split the file")
    for number, line in enumerate(lines, 1):
        if MACHINE_PATH.search(line):
            found.append(f"{path}:{number}: a path that exists only on one machine")
        if line != line.rstrip():
            found.append(f"{path}:{number}: white space at the end of the line")
    if text and not text.endswith("\n"):
        found.append(f"{path}:{len(lines)}: no newline at the end of the file")
    return found


def main():
    found, count = [], 0
    for path in sources.files():
        try:
            text = (sources.ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a binary fixture of a test
        count += 1
        found += check(path, text)
    return sources.report(found, f"{count} files: SPDX, length, paths, white space")


if __name__ == "__main__":
    sys.exit(main())
