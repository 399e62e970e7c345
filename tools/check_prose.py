#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules on prose, in documents, comments, messages and names of tests: at most 120 columns, and none of the phrases
of PHRASES, which a reader stumbles over. CONTRIBUTING.md has the rules in words.

Looked at are *.md files, comments of all other files, string literals of src and include (also raw ones), texts that
scripts print, and names of test cases.
Code between backticks is not prose."""
import re
import subprocess
import sys
from pathlib import Path

import sources

WIDTH = 120
BE = r"(?:is|are|was|were|be|been|being)"
COMPARED = r"(?:longer|more|less|fewer|larger|smaller|greater|higher|lower|later|earlier|sooner|better|worse|slower" \
           r"|faster|wider|shorter|further|different)"
# what is found, and what to write in its place
PHRASES = [
    (r"\bOf\s+(?=[\w`\"'])", "a sentence that begins with \"Of\"", "subject, verb, object"),
    (r"\bbehind\b", "\"behind\"", "after, past, below"),
    (r"\banew\b", "\"anew\"", "again, from the start"),
    (r"\b(?:go|goes|going|gone|went)\s+on\b", "\"go on\"", "continue, resume"),
    (r"(?:^|[.!?;]\s+)Where\s[^.?!;]*,\s", "\"Where ..., ...\" as a condition", "If ..., ..."),
    (r"\bwhere\s+(?:there\s+(?:is|are|was|were)|nothing|none|nobody|neither|no)\b", "\"where there is\" as a condition",
     "if there is"),
    (r"(?<!\bthere )\b(?:is|are|was|were)\s+no\b(?!\s+" + COMPARED + r"\b)(?!\s*[,.:;)\"])", "\"is no\"",
     "is not a"),
    (r"\b(?:come|comes|came|coming)\s+to\b", "\"come to\"", "reach"),
    (r"\b" + BE + r"\s+said\b", "\"is said\"", "is logged, is reported"),
    (r"\b(?:is|are|was|were)\s+through\b(?!\s+(?:the|a|an|its|their|this|that|which)\b)", "\"is through\"",
     "is complete"),
    (r"\b(?:stands|stood)\b(?!\s+(?:for|in)\b)|\bstand\b(?!-|\s+(?:for|in|alone)\b)", "\"stand\"",
     "is, is saved, is written"),
    (r"\b(?:is|are|was|were)\s+beside\b", "\"is beside\"", "runs at the same time, is asynchronous"),
    (r"\b(?:pass|passes|passed)\s+over\b", "\"pass over\"", "skip"),
    (r"\bfor\s+who\b|\bby\s+(?:him|it|them)sel(?:f|ves)\s+alone\b", "\"for who\"", "for callers that"),
]
# in any case, but for words whose capital says that they begin a sentence
PHRASES = [(re.compile(pattern, 0 if "Of" in pattern or "Where" in pattern else re.IGNORECASE), found, instead)
           for pattern, found, instead in PHRASES]

STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
# a name of a test that begins as a sentence does
CAPITAL = re.compile(r"TEST_CASE\w*\(\s*\"(A|After|All|An|Each|Every|If|No|Several|The|With|Without)\s")
LINK = re.compile(r"\]\([^)\s]*\)|<?https?://\S+")
INLINE_CODE = re.compile(r"(`+)(?:(?!\1)[^\n]|\n(?!\n))*?\1")


def blank(match):
    """As long as what it replaces, with its line breaks."""
    return re.sub(r"[^\n]", "\x01", match.group(0))


# raw strings (with their text), strings, characters, comments of a line, other comments (with their text)
TOKEN = re.compile(r'R"(\w*)\((.*?)\)\1"|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\[^\'\n]+|\\\')\'|//[^\n]*|/\*(.*?)\*/',
                   re.DOTALL)


def long_tokens_of_cpp(text):
    """[(line number, text)] of `/* */` comments; the same of raw strings with several lines; and the text without both."""
    comments, raws = [], []

    def take(match):
        number = text.count("\n", 0, match.start()) + 1
        if match.group(3) is not None:
            comments.append((number, re.sub(r"(?m)^\s*\*+|^[*!]+", lambda m: " " * len(m.group(0)), match.group(3))))
        elif match.group(2) is not None and "\n" in match.group(2):
            raws.append((number, match.group(2)))
        else:
            return match.group(0)
        return re.sub(r"[^\n]", " ", match.group(0))

    return comments, raws, TOKEN.sub(take, text)


def comments_of_cpp(text):
    """[(line number, text)] of `//` comments, by runs of lines; and of string literals in what remains."""
    comments, strings = [], []
    run, first, previous = [], 0, -2
    for number, line in enumerate(text.split("\n"), 1):
        masked = STRING.sub(lambda m: "\x01" * len(m.group(0)), line)
        at = masked.find("//")
        code = line if at < 0 else line[:at]
        for match in STRING.finditer(code):
            strings.append((number, match.group(1), code))
        if at >= 0:
            body = line[at:].lstrip("/<!")
            if previous != number - 1 or not line[:at].strip() == "" or not run:
                if run: comments.append((first, "\n".join(run)))
                run, first = [], number
            run.append(body)
            previous = number
    if run: comments.append((first, "\n".join(run)))
    return comments, strings


def joined_strings(strings):
    """Literals on lines that follow each other are one sentence."""
    blocks, previous = [], -2
    for number, text, code in strings:
        if code.strip().startswith("#include") or " " not in text.strip(): continue
        starts_line = code.lstrip().startswith('"')
        if blocks and previous == number - 1 and starts_line:
            first, so_far = blocks[-1]
            blocks[-1] = (first, so_far + "\n" + text)
        else:
            blocks.append((number, text))
        previous = number
    return blocks


# commands of shell, make, CMake and Python whose texts people read
PRINTS = re.compile(r"\b(?:echo|say|printf|stop|print|message|fail|exit|error|help|SystemExit)\b")


def comments_of_script(text):
    """`#` comments of Python, shell, CMake, TOML, make and YAML, by runs; docstrings of Python; printed texts."""
    blocks, run, first, previous = [], [], 0, -2
    for number, line in enumerate(text.split("\n"), 1):
        masked = re.sub(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'", lambda m: "\x01" * len(m.group(0)), line)
        match = re.match(r"^\s*#(?!!)", line) or re.search(r"\s#\s", masked)
        code = line[:match.start()] if match else line
        if PRINTS.search(code):
            blocks += [(number, found[0] or found[1]) for found in
                       re.findall(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'", code) if " " in (found[0] or found[1]).strip()]
        if not match: continue
        if previous != number - 1:
            if run: blocks.append((first, "\n".join(run)))
            run, first = [], number
        run.append(line[match.end():])
        previous = number
    if run: blocks.append((first, "\n".join(run)))
    for match in re.finditer(r'"""(.*?)"""', text, re.DOTALL):
        blocks.append((text.count("\n", 0, match.start()) + 1, match.group(1)))
    return blocks


def paragraphs(text):
    """Of a document, without code blocks."""
    blocks, run, first, in_code = [], [], 1, False
    for number, line in enumerate(text.split("\n") + [""], 1):
        fence = re.match(r"^\s*(```|~~~)", line)
        if fence: in_code = not in_code
        breaks = in_code or fence or not line.strip() or re.match(r"^\s*([-*|#>]|\d+\.)\s", line) or line.startswith("    ")
        if breaks and run:
            blocks.append((first, "\n".join(run)))
            run = []
        if in_code or fence or not line.strip() or line.startswith("    ") and not run: continue
        if not run: first = number
        run.append(re.sub(r"^\s*([-*#>|]+|\d+\.)\s", lambda m: " " * len(m.group(0)), line))
    return blocks


def findings_of_block(path, first, text):
    text = LINK.sub(blank, INLINE_CODE.sub(blank, text))
    found = []
    lead = len(text) - len(text.lstrip())
    for pattern, what, instead in PHRASES:
        for match in pattern.finditer(text.replace("\n", " ").replace("|", ".")[lead:]):
            line = first + text.count("\n", 0, lead + match.start() + re.search(r"\w", match.group(0)).start())
            found.append((line, f"{path}:{line}: {what}; write: {instead}"))
    return found


def check(path, text):
    """Findings of one file, as "path:line: what"."""
    found = []
    if path.suffix == ".md":
        blocks = paragraphs(text)
        generated = "<!-- Generated by" in text  # the rows of its tables are as long as the program's texts
        found += [(number, f"{path}:{number}: {len(line)} columns") for number, line in enumerate(text.split("\n"), 1)
                  if len(line) > WIDTH and not (generated and line.startswith("| "))]
    elif path.suffix in sources.CODE + (".h",):
        long_comments, raws, rest = long_tokens_of_cpp(text)
        comments, strings = comments_of_cpp(rest)
        found += [(number, f"{path}:{number}: a comment of {len(line)} columns")
                  for number, line in enumerate(text.split("\n"), 1)
                  if len(line) > WIDTH and "//" in STRING.sub("", line)]
        for first, comment in long_comments:
            found += [(number, f"{path}:{number}: a comment of {len(line)} columns")
                      for number, line in list(enumerate(text.split("\n"), 1))[first - 1:first + comment.count("\n")]
                      if len(line) > WIDTH]
        if path.parts[0] in ("tests", "bench"):
            raws = []
            for match in CAPITAL.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                found.append((line, f"{path}:{line}: a test's name begins with \"{match.group(1)}\"; write: a small letter"))
            strings = [s for s in strings if re.search(r"\b(?:TEST_CASE|SECTION|INFO|WARN|FAIL|skip|require)\b", s[2])]
        blocks = comments + long_comments + joined_strings(strings)
        for first, raw in raws: blocks += [(first + line - 1, block) for line, block in paragraphs(raw)]
    else:
        blocks = comments_of_script(text)
        found += [(number, f"{path}:{number}: a comment of {len(line)} columns")
                  for number, line in enumerate(text.split("\n"), 1)
                  if len(line) > WIDTH and re.match(r"\s*#", line)]
    for first, block in blocks:
        found += findings_of_block(path, first, block)
    return [finding for _, finding in sorted(found)]


def prose_files(root):
    """All files of the repository that people write, but this one, which names the phrases."""
    listed = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard"], cwd=root, capture_output=True,
                            check=True).stdout.decode().split("\0")
    skipped = (".json", ".csv", ".svg", ".png", ".xz", ".h5", ".safetensors", ".txt", ".css", ".js", ".def")
    return sorted(Path(name) for name in listed
                  if name and (not name.endswith(skipped) or name.endswith("CMakeLists.txt")) and name not in ("LICENSE", "tools/check_prose.py")
                  and (root / name).is_file())


def main():
    chosen = sys.argv[1:]
    found, count = [], 0
    for path in prose_files(sources.ROOT):
        if chosen and not any(str(path).startswith(place) for place in chosen): continue
        try:
            text = (sources.ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a binary fixture of a test
        count += 1
        found += check(path, text)
    return sources.report(found, f"{count} files: columns and phrases of prose")


if __name__ == "__main__":
    sys.exit(main())
