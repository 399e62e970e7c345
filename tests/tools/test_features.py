# SPDX-License-Identifier: Apache-2.0
"""Reads the table of combined features in doc/design.md. Each pair of features has a cell, and each letter of a cell an
explanation: a test file, which must exist; the message of a refusal, which must occur in src; or a reason. Each factor
of tests/support/mesh_factors.cpp must belong to features of the table."""
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FACTORS = "tests/support/mesh_factors.cpp"
PARTS = ("Tests:", "Other cells:", "Features:", "Factors of ")
HEADING = "## Combined features\n"
UNTESTED = "u"


def section_of(text):
    return text.split(HEADING, 1)[1].split("\n## ", 1)[0] if HEADING in text else ""


def items_below(section, begin):
    """The items "- `name`: text" of the list that follows a line which begins like this: pairs of name and text."""
    below = re.split("^" + re.escape(begin), section, maxsplit=1, flags=re.MULTILINE)
    if len(below) < 2: return []
    end = re.search("^(?:" + "|".join(map(re.escape, PARTS)) + ")", below[1], re.MULTILINE)
    part = below[1][:end.start() if end else None]
    items = re.findall(r"^- `([^`]+)`: (.*(?:\n  .*)*)", part, re.MULTILINE)
    return [(name, re.sub(r"\n +", " ", text)) for name, text in items]


def rows_of(section):
    """The rows of the matrix: number, feature, cells."""
    block = re.search(r"^```text\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^ *(\d+) ([^|\n]+?) *\|(.*)$", block.group(1), re.MULTILINE) if block else []
    return [(int(number), name, cells.split()) for number, name, cells in lines]


def factors_of(source):
    """One name for each entry of the list of factors: the function that sets it, or the field that it assigns."""
    body = re.search(r"MeshFactor> all = \{\n(.*?)^    \};", source, re.MULTILINE | re.DOTALL)
    entries = re.split(r"^        \{", body.group(1), flags=re.MULTILINE)[1:] if body else []
    names = [re.search(r"\bset_\w+|\bc\.[\w.]+(?= = )", entry) for entry in entries]
    return [name.group() if name else entry for name, entry in zip(names, entries)]


def check_rows(rows, features, letters):
    found = []
    for place, (number, name, cells) in enumerate(rows, 1):
        if number != place: found.append(f"row {place}, {name}: has the number {number}")
        if len(cells) != place - 1: found.append(f"{name}: has {len(cells)} cells, not {place - 1}")
        for column, cell in enumerate(cells, 1):
            if cell not in letters: found.append(f"{name}, column {column}: \"{cell}\" has no explanation")
    if [name for _, name, _ in rows] != features: found.append("the features of the table are not those of the list")
    if len(set(features)) != len(features): found.append("a feature is listed twice")
    for letter in letters:
        if letter != UNTESTED and not any(letter in cells for _, _, cells in rows):
            found.append(f"\"{letter}\": no cell has it")
    return found


def check_explanations(tests, others, exists, sources):
    found = []
    for letter, text in tests:
        file = re.match(r"`([^`]+)`: \S", text)
        if not file: found.append(f"\"{letter}\": names no test file")
        elif not file.group(1).startswith("tests/") or not exists(file.group(1)):
            found.append(f"\"{letter}\": there is no test {file.group(1)}")
    for letter, text in others:
        quoted = re.findall(r'"([^"]+)"', text)
        if text.startswith("refused") and not quoted: found.append(f"\"{letter}\": quotes no message")
        found += [f"\"{letter}\": no file in src has \"{words}\"" for words in quoted if words not in sources]
    letters = [letter for letter, _ in tests + others]
    return found + [f"\"{letter}\": is explained twice" for letter in sorted(set(letters)) if letters.count(letter) > 1]


def check_factors(listed, factors, features):
    found = [f"the factor {name} of {FACTORS} is not listed" for name in factors if name not in dict(listed)]
    for name, text in listed:
        if name not in factors: found.append(f"{FACTORS} has no factor {name}")
        of_it = re.findall(r"`([^`]+)`", text)
        if not of_it: found.append(f"the factor {name} has no feature")
        found += [f"the factor {name}: there is no feature {feature}" for feature in of_it if feature not in features]
    return found


def check(text, factors, sources, exists):
    """The findings in the text of a document."""
    section = section_of(text)
    if not section: return ["there is no table of combined features"]
    tests, others, features, listed = (items_below(section, part) for part in PARTS)
    names = [name for name, _ in features]
    letters = [letter for letter, _ in tests + others]
    return (check_rows(rows_of(section), names, letters) + check_explanations(tests, others, exists, sources)
            + check_factors(listed, factors, names))


def joined_strings(source):
    """The text of a C++ file, in which neighbouring string literals are one and quotes are plain."""
    return re.sub(r'(?<!\\)"\s*"', "", source).replace('\\"', '"')


def all_sources():
    return "\n".join(joined_strings(file.read_text(encoding="utf-8")) for file in sorted((ROOT / "src").rglob("*.c*")))


SMALL = HEADING + """
```text
             | 1 2 3
 1 plain     |
 2 two words | a
 3 third     | R u
```

Tests:

- `a`: `tests/a.cpp`: all

Other cells:

- `R`: refused by an option: "only on
  CPUs"
- `u`: untested

Features:

- `plain`: one
- `two words`: two
- `third`: three

Factors of a file:

- `set_a`: `plain`, `third`

## Next

- `b`: not a part of it
"""


class Findings(unittest.TestCase):
    """Each mistake in a table is found."""
    def check(self, *changes, factors=("set_a",), sources="it runs only on CPUs"):
        text = SMALL
        for old, new in changes:
            self.assertIn(old, text)
            text = text.replace(old, new, 1)
        return check(text, list(factors), sources, lambda name: name == "tests/a.cpp")

    def test_a_good_table(self):
        self.assertEqual(self.check(), [])
        self.assertEqual(rows_of(section_of(SMALL)),
                         [(1, "plain", []), (2, "two words", ["a"]), (3, "third", ["R", "u"])])

    def test_mistakes(self):
        cases = {
            "third: has 1 cells, not 2": ("R u\n", "R\n"),
            "third: has 3 cells, not 2": ("R u\n", "R u u\n"),
            "third, column 2: \"x\" has no explanation": ("R u\n", "R x\n"),
            "row 3, third: has the number 4": (" 3 third", " 4 third"),
            "the features of the table are not those of the list": ("- `third`: three\n", "- `fourth`: three\n"),
            "\"a\": there is no test tests/b.cpp": ("tests/a.cpp", "tests/b.cpp"),
            "\"a\": names no test file": ("`tests/a.cpp`: all", "all of them"),
            "\"R\": no file in src has \"only on GPUs\"": ("only on\n  CPUs", "only on\n  GPUs"),
            "\"R\": quotes no message": ('"only on\n  CPUs"', "it"),
            "\"a\": is explained twice": ("- `u`: untested", "- `u`: untested\n- `a`: again"),
            "\"z\": no cell has it": ("- `u`: untested", "- `u`: untested\n- `z`: never"),
            "tests/support/mesh_factors.cpp has no factor set_b": ("- `set_a`: ", "- `set_b`: `plain`\n- `set_a`: "),
            "the factor set_a: there is no feature fifth": ("`plain`, `third`", "`plain`, `fifth`"),
            "the factor set_a has no feature": ("`plain`, `third`", "nothing"),
            "there is no table of combined features": ("## Combined features", "## Other features"),
        }
        for what, change in cases.items():
            with self.subTest(what): self.assertIn(what, self.check(change))

    def test_a_new_factor_and_a_changed_message(self):
        self.assertEqual(self.check(factors=("set_a", "c.model.b")),
                         ["the factor c.model.b of tests/support/mesh_factors.cpp is not listed"])
        self.assertEqual(self.check(sources="it runs only on a CPU"), ["\"R\": no file in src has \"only on CPUs\""])

    def test_strings_of_several_lines(self):
        self.assertEqual(joined_strings('f("a \\"b\\": only "\n      "on CPUs");'), 'f("a "b": only on CPUs");')

    def test_factors(self):
        source = ("const std::vector<MeshFactor> all = {\n        {2, always, set_a},\n        {2, has_pp,\n"
                  "         [](MeshCase& c, int n) {\n             if (n) set_b(c, n);\n         }},\n"
                  "        {2, always, [](MeshCase& c, int n) { c.model.x = n; }, true},\n    };\n")
        self.assertEqual(factors_of(source), ["set_a", "set_b", "c.model.x"])


class Table(unittest.TestCase):
    """The table of doc/design.md."""
    def setUp(self):
        self.text = (ROOT / "doc/design.md").read_text(encoding="utf-8")
        self.factors = factors_of((ROOT / FACTORS).read_text(encoding="utf-8"))

    def check(self, text):
        return check(text, self.factors, all_sources(), lambda name: (ROOT / name).is_file())

    def test_it_has_no_mistake(self):
        self.assertEqual(self.check(self.text), [])

    def test_it_is_read(self):
        rows = rows_of(section_of(self.text))
        self.assertGreater(len(rows), 40)
        self.assertEqual(sum(len(cells) for _, _, cells in rows), len(rows) * (len(rows) - 1) // 2)
        self.assertGreater(len(self.factors), 15)

    def test_a_planted_mistake_is_found(self):
        last = rows_of(section_of(self.text))[-1]
        line = next(line for line in self.text.split("\n") if re.match(rf" *{last[0]} {last[1]} ", line))
        self.assertEqual(self.check(self.text.replace(line, line[:-2])),
                         [f"{last[1]}: has {len(last[2]) - 1} cells, not {len(last[2])}"])
        file = re.search(r"^- `a`: `([^`]+)`", section_of(self.text), re.MULTILINE).group(1)
        self.assertEqual(self.check(self.text.replace(f"- `a`: `{file}`", "- `a`: `tests/absent.cpp`")),
                         ["\"a\": there is no test tests/absent.cpp"])
        message = re.search(r'^- `R`: .*"([^"\n]+)"', section_of(self.text), re.MULTILINE).group(1)
        self.assertEqual(self.check(self.text.replace(f'"{message}"', '"words of no message"')),
                         ["\"R\": no file in src has \"words of no message\""])


if __name__ == "__main__":
    unittest.main()
