#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that everything exists that documents name: the files and headings of links, commands and their flags, options
of decks, targets of the Makefile. All *.md files are checked. In CHANGELOG.md only links are, since it also names
things that were removed.

Options are read from doc/decks.md, which a test compares with the program's own table; commands and flags from src/apps."""
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
        self.commands = set(re.findall(r'^\s*\{"([a-z]+)",', read(root, "src/apps/commands.cpp"), re.MULTILINE))
        self.commands |= {"help", "version"}
        self.flags = {"help", "version", "force", "dry_run", "quiet", "ranks"}
        for place in sorted((root / "src/apps").rglob("*.cpp")):
            text = place.read_text()
            self.flags |= set(re.findall(r'\badd(?:_list|_switch)?\(\s*"([\w-]+)"', text))
            self.flags |= set(re.findall(r'"(?:--)([\w-]+)', text))
        self.flags |= set(re.findall(r'"--([\w-]+)', "".join(p.read_text() for p in (root / "src").rglob("*.cpp"))))
        self.verbs = set(re.findall(r"^([a-z-]+):", read(root, "Makefile"), re.MULTILINE))

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


def check_code(path, text, known):
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
        for word, rest in re.findall(r"(?<![\w.-])coeus ([a-z]+|-{1,2}\w+)\b(?![=/.:])([^|;]*)", code):
            if not word.startswith("-") and word not in known.commands:
                found.append(f"{place}: there is no command coeus {word}")
            for flag in re.findall(r"(?<![\w-])--([a-z][\w-]*)(?![\w.])", rest + " " + word):
                if flag not in known.flags and flag not in known.options:
                    found.append(f"{place}: there is no flag --{flag} of coeus")
        for verb in re.findall(r"^\s*(?:\w+=\S+ )*make ([a-z][a-z-]*)\b(?!=)", code):
            if verb not in known.verbs: found.append(f"{place}: the Makefile has no target {verb}")
    return found


def check(path, text, known, root=sources.ROOT):
    """Findings of one document, as "path:line: what"."""
    found = check_links(path, text, root)
    if path.name != "CHANGELOG.md": found += check_code(path, text, known)
    return found


def documents(root=sources.ROOT):
    listed = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard", "*.md"], cwd=root, capture_output=True,
                            check=True).stdout.decode().split("\0")
    return sorted(Path(name) for name in listed if name and (root / name).is_file())


def main():
    known, found, paths = Known(), [], documents()
    for path in paths:
        found += check(path, (sources.ROOT / path).read_text(encoding="utf-8"), known)
    return sources.report(found, f"{len(paths)} documents: links, commands, options, make targets")


if __name__ == "__main__":
    sys.exit(main())
