#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/data/tokenizer/unicode_table.cpp, the categories of all characters in one version of Unicode.

usage: python3 tools/unicode_table.py [--check]

The data are those of the Python module unicodedata2 (`pip install unicodedata2==16.0.0`), or of Python's own
unicodedata if it has the same version (Python 3.14). --check compares the file and writes nothing."""
import pathlib
import sys

VERSION = "16.0.0"
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()
TARGET = pathlib.Path(__file__).resolve().parent.parent / "src/data/tokenizer/unicode_table.cpp"

HEAD = f"""// SPDX-License-Identifier: Apache-2.0
// Written by tools/unicode_table.py from the Unicode Character Database {VERSION}. Do not edit.
#include "unicode_table.hpp"

#include <array>

namespace coeus {{

const char* const unicode_version = "{VERSION}";

namespace {{

// first character << 5 | category
// clang-format off
constexpr std::array<uint32_t, COUNT> runs = {{
"""
TAIL = """};
// clang-format on

}  // namespace

std::span<const uint32_t> category_runs() {
    return runs;
}

}  // namespace coeus
"""


def database():
    for name in ("unicodedata2", "unicodedata"):
        try:
            module = __import__(name)
        except ImportError:
            continue
        if module.unidata_version == VERSION:
            return module
    sys.exit(f"Unicode {VERSION} is not here: pip install unicodedata2=={VERSION}")


def text_of(module):
    runs, last = [], None
    for code in range(0x110000):
        category = CATEGORIES.index(module.category(chr(code)))
        if category != last:
            runs.append(f"0x{code << 5 | category:x},")
        last = category
    lines = []
    for run in runs:
        if not lines or len(lines[-1]) + 1 + len(run) > 108:
            lines.append("   ")
        lines[-1] += " " + run
    return HEAD.replace("COUNT", str(len(runs))) + "\n".join(lines) + "\n" + TAIL


text = text_of(database())
if sys.argv[1:] != ["--check"]:
    TARGET.write_text(text)
elif TARGET.read_text() != text:
    sys.exit(f"{TARGET} differs from Unicode {VERSION}: run tools/unicode_table.py")
