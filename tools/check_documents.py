#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that everything exists that documents name: the files and headings of links, commands and the flags of each
command, options of decks (on command lines and in ```toml blocks), targets of the Makefile, files of the repository.
All *.md files are checked. In CHANGELOG.md only links are, since it also names things that were removed.

Options are read from doc/decks.md, which a test compares with the program's own table; commands and their flags from
src/apps."""
import re
import subprocess
import sys
from pathlib import Path

import sources

CODE_SPAN = re.compile(r"``(.+?)``|`([^`\n]+)`")
FILE_ENDINGS = ("cpp", "hpp", "cu", "h5", "toml", "json", "jsonl", "py", "sh", "so", "md", "csv", "svg", "html", "gz",
                "zst", "safetensors", "cmake", "txt", "part", "parts", "model", "sbatch", "log", "x", "svg")


def read(root, name):
    path = root / name
    return path.read_text(encoding="utf-8") if path.is_file() else ""


# folders of the repository; a path that begins with one of them must exist
FOLDERS = ("src", "include", "doc", "tools", "tests", "examples", "inputs", "bench", "cmake", "jobscripts", "packaging")
# the new files of the recipes of doc/adding.md, which do not exist
NEW_FILES = re.compile(r"/(?:relu2|lion|gpipe_lifo|GPipeLifo|arcee)\.\w+$")


class Known:
    """The names that documents may use."""

    def __init__(self, root=sources.ROOT):
        decks = read(root, "doc/decks.md")
        self.options, section = set(), ""
        for line in decks.split("\n"):
            heading = re.match(r"^##+ `?\[([\w.]+)\]", line)
            if heading: section = heading.group(1) + "."
            elif line.startswith("## "): section = ""
            named = re.match(r"^(?:\| |- )(?:\*\*)?`([\w.]+)`", line)
            if named:
                name = named.group(1)
                self.options |= {name, name if name.startswith(section) else section + name}
        self.sections = {name.rsplit(".", 1)[0] for name in self.options if "." in name}
        self.keys_of_groups = set(re.findall(r'"(\w+)\.?"', read(root, "src/config/param_groups.cpp")))
        self.read_commands(root)
        self.verbs = set(re.findall(r"^([a-z-]+):", read(root, "Makefile"), re.MULTILINE))

    def read_commands(self, root):
        """Sets `flags`: command -> its flags; and `takes_options`: the commands that take options of a deck."""
        # "coeus --help" and "coeus --version" have no command; the last flag is that of "coeus help options"
        self.flags = {"": {"help", "version"}, "version": set(), "help": {"man", "bash", "zsh", "markdown"}}
        self.takes_options = set()
        for text in re.findall(r'^\s*\{("[a-z]+",[^{}]*)\},', read(root, "src/apps/commands.cpp"), re.MULTILINE):
            name, last = re.match(r'"(\w+)"', text).group(1), re.sub(r'"(?:[^"\\]|\\.)*"', '""', text).split(",")[4:]
            self.flags[name] = {"help"}
            if last and last[0].strip() == "true": self.takes_options.add(name)
        places = sorted((root / "src/apps").rglob("*.cpp"))
        flag = re.compile(r'\badd(?:_list|_switch)?\(\s*"([\w.-]+)"')
        # functions that add the same flags to several commands
        shared = {name: set(flag.findall(body)) for place in places for name, body in
                  re.findall(r'^void (add_\w+)\(Flags& flags\) \{(.*?)\n\}', place.read_text(), re.DOTALL | re.MULTILINE)}
        for place in places:
            # from the declaration of a command's flags to the end of this function
            for name, body in re.findall(r'\bFlags flags\(\s*"(\w+)",(.*?)\n\}', place.read_text(), re.DOTALL):
                if name not in self.flags: continue
                self.flags[name] |= set(flag.findall(body))
                if "add_force()" in body: self.flags[name].add("force")
                for adder, flags in shared.items():
                    if f"{adder}(flags)" in body: self.flags[name] |= flags

    def has_flag(self, command, flag):
        return flag in self.flags[command] or command in self.takes_options and flag in self.options

    def is_option(self, name):
        head, _, last = name.rpartition(".")
        return name in self.options or (last.startswith("no_") and f"{head}.{last[3:]}" in self.options)


def slug(heading):
    """The anchor of a heading on GitHub."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(text):
    found, in_code = set(), False
    for line in text.split("\n"):
        if line.startswith("```"): in_code = not in_code
        heading = re.match(r"^#+ (.*)", line)
        if heading and not in_code: found.add(slug(heading.group(1)))
    return found


def code_of(text):
    """[(line number, code)] of lines in code blocks and of spans between backticks."""
    found, in_block, number = [], False, 0
    lines = text.split("\n")
    while number < len(lines):
        line = lines[number]
        number += 1
        if line.lstrip().startswith("```"):
            in_block = not in_block
            continue
        if in_block or line.startswith("    "):
            first = number
            while line.endswith("\\") and number < len(lines):
                line = line[:-1] + lines[number].strip()
                number += 1
            found.append((first, line.split(" # ")[0]))
        else:
            found += [(number, (match.group(1) or match.group(2))) for match in CODE_SPAN.finditer(line)]
    return found


def check_links(path, text, root):
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        for target in re.findall(r"\]\(([^)\s]+)\)", CODE_SPAN.sub("", line)):
            if re.match(r"[a-z]+:", target): continue
            place, _, anchor = target.partition("#")
            file = (root / path.parent / place).resolve() if place else root / path
            if not file.exists():
                found.append(f"{path}:{number}: the link leads to {place}, which does not exist")
            elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8")):
                found.append(f"{path}:{number}: {place or path} has no heading #{anchor}")
    return found


def check_code(path, text, known, root):
    found = []
    for number, code in code_of(text):
        place = f"{path}:{number}"
        for name in re.findall(r"(?<![\w-])--([a-z]\w*(?:\.\w+)+)", code):
            if not name.startswith("section.") and not known.is_option(name):  # "section.option" stands for any name
                found.append(f"{place}: there is no option --{name}")
        for name in re.findall(r"(?<![\w./-])([a-z]\w*(?:\.[a-z]\w*)+)(?![\w(/.])", code):
            head, _, last = name.rpartition(".")
            if head in known.sections and last not in FILE_ENDINGS and not known.is_option(name):
                found.append(f"{place}: there is no option {name}")
        for word, rest in re.findall(r"(?<![\w.-])coeus ([a-z]+|-{1,2}\w+)\b(?![=/.:])([^|;&]*)", code):
            if word.startswith("-"): word, rest = "", f"{word} {rest}"
            if word not in known.flags:
                found.append(f"{place}: there is no command coeus {word}")
                continue
            for name in re.findall(r"(?<![\w-])--([a-z][\w.-]*)", rest):
                if "." in name:
                    if known.is_option(name) and word not in known.takes_options and name not in known.flags[word]:
                        found.append(f"{place}: coeus {word} takes no options of a deck, such as --{name}")
                elif not known.has_flag(word, name):
                    found.append(f"{place}: there is no flag --{name} of coeus {word}".rstrip())
        for verb in verbs_of_make(code):
            if verb not in known.verbs: found.append(f"{place}: the Makefile has no target {verb}")
        for name in paths_of(code):
            if not (root / name).exists() and not (root / path.parent / name).exists():
                found.append(f"{place}: there is no {name}")
    return found


def verbs_of_make(code):
    """The targets of each call of make in a line of shell."""
    found = []
    for command in re.split(r"&&|\|\||[;|]", code):
        words = re.sub(r"'[^']*'|\"[^\"]*\"", "TEXT", command).split()
        while words and (re.match(r"\w+=", words[0]) or words[0] in ("sudo", "time", "nice", "env")): words.pop(0)
        if not words or words.pop(0) != "make": continue
        while words:
            word = words.pop(0)
            if word in ("-C", "-f"): break  # another Makefile
            if word == "-j" and words and words[0].isdigit(): words.pop(0)
            elif re.fullmatch(r"[a-z][a-z-]*", word): found.append(word)
            elif not word.startswith("-") and "=" not in word: break
    return found


def paths_of(code):
    """The paths of the repository in a piece of code, but for patterns and placeholders (`src/*.cpp`, `doc/NAME.md`)."""
    found = []
    for name in re.findall(rf"(?<![\w./$}}-])(?:{'|'.join(FOLDERS)})/[^\s`'\",;()|=]*", code):
        name = re.sub(r"(?::\d+)?[.:]*$", "", name)
        if re.search(r"[*?<>{}\[\]$#@]|\.\.\.", name) or NEW_FILES.search(name): continue
        if any(re.fullmatch(r"[A-Z][A-Z_\d]*", Path(part).stem) and part != "README.md" for part in name.split("/")): continue
        found.append(name)
    return found


def check_decks(path, text, known):
    """Findings of ```toml blocks: every option must exist."""
    found, in_deck, section, depth = [], False, "", 0
    for number, line in enumerate(text.split("\n"), 1):
        fence = re.match(r"^\s*```(\w*)", line)
        if fence:
            in_deck, section, depth = not in_deck and fence.group(1) == "toml", "", 0
            continue
        if not in_deck: continue
        code = re.sub(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'', '""', line).split("#")[0]
        heading, key = re.match(r"^\s*\[\[?([\w.]+)\]", code), re.match(r"^\s*([\w.]+)\s*=", code)
        if depth == 0 and heading:
            section = heading.group(1)
            if section not in known.sections and section not in known.options:
                found.append(f"{path}:{number}: there is no section [{section}]")
        elif depth == 0 and key:
            name = f"{section}.{key.group(1)}" if section else key.group(1)
            if section in known.options:  # a table of a list, such as [[optimizer.param_groups]]
                good = key.group(1) in known.keys_of_groups
            else:
                good = name == "include" or name in known.options or section and section not in known.sections
            if not good: found.append(f"{path}:{number}: there is no option {name}")
        if depth > 0 or key: depth += sum(code.count(c) for c in "[{") - sum(code.count(c) for c in "]}")
    return found


def check(path, text, known, root=sources.ROOT):
    """Findings of one document, as "path:line: what"."""
    found = check_links(path, text, root)
    if path.name != "CHANGELOG.md": found += check_code(path, text, known, root) + check_decks(path, text, known)
    return found


def documents(root=sources.ROOT):
    listed = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard", "*.md"], cwd=root, capture_output=True,
                            check=True).stdout.decode().split("\0")
    return sorted(Path(name) for name in listed if name and (root / name).is_file())


def main():
    known, found, paths = Known(), [], documents()
    for path in paths:
        found += check(path, (sources.ROOT / path).read_text(encoding="utf-8"), known)
    return sources.report(found, f"{len(paths)} documents: links, commands, options, make targets, paths")


if __name__ == "__main__":
    sys.exit(main())
