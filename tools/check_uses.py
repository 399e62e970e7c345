#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each file includes what it uses, directly or through our own headers. The build compiles files in batches
(COEUS_UNITY_BATCH), so the compiler does not notice a missing include if an earlier file in the batch has it.

Checked are the names of the standard library in STANDARD, our types, and our functions whose names have an underscore
(a single word is too often also a variable). A standard header that another one includes by chance does not count,
unless ALSO lists it."""
import os
import re
import sys
from pathlib import Path

import sources

STANDARD = {
    "bitset": "bitset",
    "algorithm": "min max sort find clamp count fill all_of any_of find_if find_if_not min_element max_element stable_sort equal"
                 " copy copy_n none_of adjacent_find count_if minmax_element rotate pop_heap push_heap make_heap fill_n"
                 " reverse transform copy_if lower_bound upper_bound shuffle replace replace_if mismatch unique"
                 " stable_partition nth_element is_sorted partition_point ranges",
    "array": "array",
    "atomic": "atomic atomic_ref memory_order_relaxed memory_order_release memory_order_acquire atomic_thread_fence",
    "bit": "bit_cast bit_floor bit_width bit_ceil countr_zero rotl rotr endian popcount",
    "cctype": "isalnum isdigit ispunct isupper isxdigit tolower toupper isspace isalpha",
    "charconv": "from_chars to_chars",
    "chrono": "chrono",
    "cmath": "nan abs sqrt fabs fma isfinite isnan isinf pow log exp sin cos fmax fmin floor ceil round lround llround nextafter"
             " ldexp log10 log2 exp2 erf erfc copysign nearbyint llrint ilogb signbit fmod hypot tanh",
    "concepts": "integral same_as floating_point",
    "condition_variable": "condition_variable",
    "csignal": "signal raise",
    "cstddef": "byte ptrdiff_t",
    "cstdio": "FILE clearerr ferror fflush printf fputs puts snprintf fprintf fwrite fgets fopen fclose remove rename",
    "cstdlib": "atof getenv atoi atoll free malloc exit _Exit abort strtol strtoll strtoull aligned_alloc",
    "cstring": "memcpy memset memcmp memmove memchr strcmp strlen strchr strrchr strncmp strerror",
    "ctime": "time",
    "deque": "deque",
    "exception": "exception exception_ptr current_exception rethrow_exception uncaught_exceptions terminate",
    "filesystem": "filesystem",
    "fstream": "ifstream ofstream fstream",
    "functional": "function greater less hash invoke",
    "future": "future promise async launch",
    "initializer_list": "initializer_list",
    "iostream": "cout cerr",
    "istream": "ios ws ostream flush endl streambuf streamsize",
    "iterator": "begin end size back_inserter distance istreambuf_iterator prev next",
    "limits": "numeric_limits",
    "list": "list",
    "map": "map multimap",
    "memory": "unique_ptr make_unique shared_ptr make_shared weak_ptr addressof align allocator_arg",
    "mutex": "mutex lock_guard unique_lock recursive_mutex once_flag call_once scoped_lock",
    "new": "bad_alloc align_val_t",
    "numbers": "numbers",
    "numeric": "iota accumulate gcd inner_product",
    "optional": "optional nullopt",
    "queue": "priority_queue queue",
    "random": "mt19937 mt19937_64",
    "regex": "regex regex_error smatch regex_search regex_replace regex_match sregex_iterator",
    "set": "set multiset",
    "source_location": "source_location",
    "span": "span as_bytes",
    "sstream": "istringstream ostringstream stringstream",
    "stdexcept": "runtime_error logic_error",
    "string": "char_traits string_literals string to_string getline stod stoi stoll stoull",
    "string_view": "string_view string_view_literals",
    "system_error": "error_code errc generic_category make_error_code system_error",
    "thread": "thread jthread this_thread",
    "tuple": "tuple tie make_tuple tuple_cat",
    "type_traits": "is_constant_evaluated is_enum_v is_same_v conditional_t integral_constant remove_cvref_t is_trivially_copyable_v"
                   " is_floating_point_v is_integral_v is_class_v is_pointer_v type_identity_t remove_const_t"
                   " remove_pointer_t remove_reference_t is_invocable_r_v is_copy_constructible_v"
                   " is_copy_assignable_v",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "utility": "move pair exchange swap forward declval as_const in_place integer_sequence make_integer_sequence",
    "variant": "variant holds_alternative get get_if monostate variant_size_v visit",
    "vector": "vector erase erase_if",
}
# name -> other headers that must have it, by the standard or because they cannot be implemented without it
ALSO = {
    "move": "algorithm array deque filesystem fstream functional map memory mutex optional set span sstream string"
            " string_view thread tuple unordered_map variant vector",
    "pair": "algorithm map set string unordered_map vector",
    "forward": "functional memory",
    "swap": "string vector",
    "string": "filesystem fstream sstream",
    "getline": "fstream sstream",
    "error_code": "filesystem",
    "byte": "span",
    "ptrdiff_t": "span string vector",
    "exception": "stdexcept",
    "exception_ptr": "stdexcept",
    "abs": "cstdlib",
    "begin": "array map set span string vector",
    "end": "array map set span string vector",
    "size": "array map set span string vector",
    "erase": "map set string",
    "erase_if": "deque map set string",
    "ranges": "ranges",
    "ios": "fstream iostream sstream",
    "ws": "fstream iostream sstream",
    "flush": "fstream iostream sstream",
    "endl": "iostream",
    "ostream": "fstream iostream sstream",
    "streambuf": "iostream",
    "hash": "string",
    "less": "map set",
    "remove": "algorithm filesystem",
}
# standard headers of types in the documented interfaces of other libraries
BROUGHT = {"catch2/": {"string", "vector", "memory"}, "fmt/": {"string"}}
HOME = {name: header for header, names in STANDARD.items() for name in names.split()}

QUOTED = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
ANGLED = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.MULTILINE)
NOT_CODE = re.compile(r'//[^\n]*|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.DOTALL)
DIRECTIVE = re.compile(r"^\s*#.*$", re.MULTILINE)
INTEGER = re.compile(r"\bu?int(?:8|16|32|64|ptr)_t\b")
LANGUAGE = re.compile(r"_t$|^static_assert$")
KINDS = r"(?:class|struct|enum class|enum|union)"
TYPE = re.compile(rf"^{KINDS}(?: \[\[nodiscard\]\])? ([A-Z]\w+)(?=[^;\n]*[{{:]| final)|^using ([A-Z]\w+) =", re.MULTILINE)
# members: their names may be used without naming their class
NESTED = re.compile(rf"^[ \t]+(?:{KINDS}|using) ([A-Z]\w+)|^ +[\w:<>,*&\[\] ]+[ *&]\(?\*?([a-z]\w*_\w+)[()]", re.MULTILINE)
FUNCTION = re.compile(r"^(?=[A-Za-z])(?!using|return|namespace)[\w:<>,*&\[\] ]+[ *&]([a-z]\w*_\w+)\([^\n]*[,;{)]$", re.MULTILINE)
USED_TYPE = re.compile(r"(?<![\w.>:])(?:coeus::|test::)*([A-Z]\w+)\b")
USED_FUNCTION = re.compile(r"(?<![\w.>:~])(?:coeus::|test::)*([a-z]\w*_\w+)\(")
OWN_TYPE = re.compile(rf"\b(?:{KINDS}|typename|using|concept|typedef \w+)(?:\.\.\.)? ([A-Z]\w+)")
# declared or defined in this file: at the beginning of a line, after a type
OWN_FUNCTION = re.compile(r"^ *(?!return |throw |else |case |co_)(?:template <[^\n]*> )?(?:[\w:]+(?:<[^\n()]*>)?[*&]* )+[*&]*([a-z]\w*_\w+)\("
                          r"|\bauto[&*]* ([a-z]\w*_\w+) = ", re.MULTILINE)


def code_of(text):
    """The text without comments, strings and directives."""
    return DIRECTIVE.sub("", NOT_CODE.sub('""', text))


class Tree:
    """All files, and the places where their names are declared."""

    def __init__(self, texts):
        self.texts = texts
        self.code = {path: code_of(text) for path, text in texts.items()}
        nested = {name for path, text in self.code.items() if path.suffix == ".hpp"
                  for names in NESTED.findall(text) for name in names}
        self.declared = {}
        for path, text in self.code.items():
            if path.suffix in (".hpp", ".cuh") and Path("tests/stand_ins/cuda") not in path.parents:  # they declare CUDA's names
                for pattern in (TYPE, FUNCTION):
                    for match in pattern.finditer(text):
                        name = next(group for group in match.groups() if group)
                        if name not in nested and not LANGUAGE.search(name):
                            self.declared.setdefault(name, set()).add(path)

    def target(self, path, name):
        """The file that `#include "name"` refers to in the file `path`, or None."""
        folders = [path.parent, Path("include"), Path("tests"), Path("tests/stand_ins/cuda")]
        if path.parts[0] == "src":
            folders.append(Path(*path.parts[:2]))
        return next((p for p in (Path(os.path.normpath(f / name)) for f in folders) if p in self.texts), None)

    def reached(self, path, seen=None):
        """The file and all of our headers that it includes, directly or not."""
        seen = set() if seen is None else seen
        if path not in seen:
            seen.add(path)
            for name in QUOTED.findall(self.texts[path]):
                target = self.target(path, name)
                if target:
                    self.reached(target, seen)
        return seen

    def check(self, path):
        """Findings of one file, as "path:line: what"."""
        reached = self.reached(path)
        headers = {name for p in reached for name in ANGLED.findall(self.texts[p])}
        for start, brought in BROUGHT.items():
            if any(name.startswith(start) for name in headers):
                headers |= brought
        code = self.code[path]
        lacks = {}
        for name in sorted(set(re.findall(r"\bstd::(\w+)", code)) & set(HOME)):
            if not headers & {HOME[name], *ALSO.get(name, "").split()}:
                lacks.setdefault(f"<{HOME[name]}>", f"std::{name}")
        unknown = set(re.findall(r"\bstd::(\w+)", code)) - set(HOME)
        if unknown:
            lacks["a header that STANDARD of tools/check_uses.py knows"] = f"std::{min(unknown)}"
        if INTEGER.search(code) and "cstdint" not in headers:
            lacks["<cstdint>"] = INTEGER.search(code).group()
        own = {name for groups in OWN_FUNCTION.findall(code) for name in groups} | {
            name for p in reached for name in OWN_TYPE.findall(self.code[p])}
        for name in sorted((set(USED_TYPE.findall(code)) | set(USED_FUNCTION.findall(code))) - own):
            places = self.declared.get(name)
            if places and not places & reached:
                lacks.setdefault(f'"{min(places)}"', name)
        found = []
        for header, name in lacks.items():
            line = next((n for n, text in enumerate(self.texts[path].splitlines(), 1)
                         if re.search(rf"\b{re.escape(name)}\b", text)), 1)
            found.append(f"{path}:{line}: uses {name}, but does not include {header}")
        return found


def main():
    tree = Tree({path: (sources.ROOT / path).read_text() for path in sources.code()})
    found = [finding for path in tree.texts for finding in tree.check(path)]
    return sources.report(found, f"{len(tree.texts)} files: each includes what it uses")


if __name__ == "__main__":
    sys.exit(main())
