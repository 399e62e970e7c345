# SPDX-License-Identifier: Apache-2.0
"""Reads doc/features.md. Each pair of features has a letter, and each letter an explanation: a test file, which must
exist; the message of a refusal, which must occur in src; or a reason. Each factor of tests/support/mesh_factors.cpp
must choose a feature."""
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "doc/features.md"
FACTORS = "tests/support/mesh_factors.cpp"
PARTS = ("Features of meshes", "Other features", "Pairs", "Tests", "Other letters")
WITHOUT_FACTOR = ("the mesh", "every case")
OF_MESHES, UNTESTED = "a", "u"


def items_below(text, heading):
    """The items "- `name`: text" below a heading: pairs of name and text."""
    part = re.split(f"^## {heading}\n", text, maxsplit=1, flags=re.MULTILINE)[1:]
    items = re.findall(r"^- `([^`]+)`: (.*(?:\n  .*)*)", part[0].split("\n## ")[0], re.MULTILINE) if part else []
    return [(name, re.sub(r"\n +", " ", words)) for name, words in items]


def names_in(text):
    return re.findall(r"`([^`]+)`", text)


def letters_of(line):
    """A line of pairs: the letter of most pairs, and [(another letter, the features that have it)]."""
    usual, *others = line.split("; ")
    return usual, [(other.split(":")[0], names_in(other)) for other in others]


def factors_of(source):
    """One name for each entry of the list of factors: the function that sets it, or the field that it assigns."""
    body = re.search(r"MeshFactor> all = \{\n(.*?)^    \};", source, re.MULTILINE | re.DOTALL)
    entries = re.split(r"^        \{", body.group(1), flags=re.MULTILINE)[1:] if body else []
    names = [re.search(r"\bset_\w+|\bc\.[\w.]+(?= = )", entry) for entry in entries]
    return [name.group() if name else entry for name, entry in zip(names, entries)]


def check_pairs(pairs, meshes, others, letters):
    order, found, used = meshes + others, [], {OF_MESHES}
    for name in sorted(set(order)):
        if order.count(name) > 1: found.append(f"the feature {name} is listed twice")
    lines = [name for name, _ in pairs]
    found += [f"{name}: has no line of pairs" for name in others if name not in lines]
    found += [f"{name}: there is no such feature, or its line is not in the order of the features" for place, name in
              enumerate(lines) if name not in order or place and lines[place - 1] in order
              and order.index(lines[place - 1]) >= order.index(name)]
    for name, line in pairs:
        usual, groups = letters_of(line)
        above = order[:order.index(name)] if name in order else []
        with_another = [feature for _, features in groups for feature in features]
        used |= {usual} | {letter for letter, _ in groups}
        if name in meshes and usual != OF_MESHES: found.append(f"{name}: its usual letter must be {OF_MESHES}")
        found += [f"{name}: \"{letter}\" has no feature" for letter, features in groups if not features]
        found += [f"{name}: there is no feature {feature} above it" for feature in with_another if feature not in above]
        found += [f"{name}: {feature} has two letters" for feature in sorted(set(with_another))
                  if with_another.count(feature) > 1]
    found += [f"\"{letter}\" has no explanation" for letter in sorted(used) if letter not in letters]
    return found + [f"\"{letter}\": no pair has it" for letter in letters if letter not in used | {UNTESTED}]


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


def check_factors(meshes, factors):
    found, of_all = [], set()
    for name, text in meshes:
        by = text.rsplit("; by ", 1)[1].split(", ") if "; by " in text else []
        if not by: found.append(f"{name}: nothing chooses it")
        chosen_by = [factor.strip("`") for factor in by if factor not in WITHOUT_FACTOR]
        found += [f"{name}: {FACTORS} has no factor {factor}" for factor in chosen_by if factor not in factors]
        of_all |= set(chosen_by)
    return found + [f"the factor {name} of {FACTORS} chooses no feature" for name in factors if name not in of_all]


def check(text, factors, sources, exists):
    """The findings in the text of the page."""
    meshes, features, pairs, tests, others = (items_below(text, part) for part in PARTS)
    if not meshes or not features: return ["there are no features"]
    return (check_pairs(pairs, [name for name, _ in meshes], [name for name, _ in features],
                        [letter for letter, _ in tests + others])
            + check_explanations(tests, others, exists, sources) + check_factors(meshes, factors))


def joined_strings(source):
    """The text of a C++ file, in which neighbouring string literals are one and quotes are plain."""
    return re.sub(r'(?<!\\)"\s*"', "", source).replace('\\"', '"')


def all_sources():
    return "\n".join(joined_strings(file.read_text(encoding="utf-8")) for file in sorted((ROOT / "src").rglob("*.c*")))


SMALL = """
## Features of meshes

- `plain`: one; by `set_a`
- `two words`: two; by the mesh, `set_a`

## Other features

- `third`: three
- `fourth`: four

## Pairs

- `third`: a; R: `two words`
- `fourth`: u; a: `two words`, `third`

## Tests

- `a`: `tests/a.cpp`: all

## Other letters

- `R`: refused by an option: "only on
  CPUs"
- `u`: untested

## Next

- `b`: not a part of it
"""


class Findings(unittest.TestCase):
    """Each mistake in a page is found."""
    def check(self, *changes, factors=("set_a",), sources="it runs only on CPUs"):
        text = SMALL
        for old, new in changes:
            self.assertIn(old, text)
            text = text.replace(old, new, 1)
        return check(text, list(factors), sources, lambda name: name == "tests/a.cpp")

    def test_a_good_page(self):
        self.assertEqual(self.check(), [])
        self.assertEqual(letters_of(items_below(SMALL, "Pairs")[1][1]), ("u", [("a", ["two words", "third"])]))

    def test_mistakes(self):
        cases = {
            "third: has no line of pairs": ("- `third`: a; R: `two words`\n", ""),
            "third: there is no such feature, or its line is not in the order of the features":
                ("- `third`: a; R: `two words`\n- `fourth`: u; a: `two words`, `third`\n",
                 "- `fourth`: u; a: `two words`, `third`\n- `third`: a; R: `two words`\n"),
            "fifth: there is no such feature, or its line is not in the order of the features":
                ("- `third`: a;", "- `fifth`: a\n- `third`: a;"),
            "third: there is no feature fourth above it": ("R: `two words`", "R: `fourth`"),
            "fourth: third has two letters": ("`two words`, `third`", "`two words`, `third`, `third`"),
            "third: \"R\" has no feature": ("R: `two words`", "R"),
            "\"x\" has no explanation": ("R: `two words`", "x: `two words`"),
            "two words: its usual letter must be a": ("- `third`: a;", "- `two words`: u\n- `third`: a;"),
            "the feature plain is listed twice": ("- `third`: three\n", "- `third`: three\n- `plain`: again\n"),
            "\"a\": there is no test tests/b.cpp": ("tests/a.cpp", "tests/b.cpp"),
            "\"a\": names no test file": ("`tests/a.cpp`: all", "all of them"),
            "\"R\": no file in src has \"only on GPUs\"": ("only on\n  CPUs", "only on\n  GPUs"),
            "\"R\": quotes no message": ('"only on\n  CPUs"', "it"),
            "\"a\": is explained twice": ("- `u`: untested", "- `u`: untested\n- `a`: again"),
            "\"z\": no pair has it": ("- `u`: untested", "- `u`: untested\n- `z`: never"),
            "plain: tests/support/mesh_factors.cpp has no factor set_b": ("by `set_a`", "by `set_b`"),
            "plain: nothing chooses it": ("one; by `set_a`", "one"),
            "there are no features": ("## Features of meshes", "## Features"),
        }
        for what, change in cases.items():
            with self.subTest(what): self.assertIn(what, self.check(change))

    def test_a_new_factor_and_a_changed_message(self):
        self.assertEqual(self.check(factors=("set_a", "c.model.b")),
                         ["the factor c.model.b of tests/support/mesh_factors.cpp chooses no feature"])
        self.assertEqual(self.check(sources="it runs only on a CPU"), ["\"R\": no file in src has \"only on CPUs\""])

    def test_strings_of_several_lines(self):
        self.assertEqual(joined_strings('f("a \\"b\\": only "\n      "on CPUs");'), 'f("a "b": only on CPUs");')

    def test_factors(self):
        source = ("const std::vector<MeshFactor> all = {\n        {2, always, set_a},\n        {2, has_pp,\n"
                  "         [](MeshCase& c, int n) {\n             if (n) set_b(c, n);\n         }},\n"
                  "        {2, always, [](MeshCase& c, int n) { c.model.x = n; }, true},\n    };\n")
        self.assertEqual(factors_of(source), ["set_a", "set_b", "c.model.x"])


class Page(unittest.TestCase):
    """doc/features.md."""
    def setUp(self):
        self.text = PAGE.read_text(encoding="utf-8")
        self.factors = factors_of((ROOT / FACTORS).read_text(encoding="utf-8"))

    def check(self, text):
        return check(text, self.factors, all_sources(), lambda name: (ROOT / name).is_file())

    def test_it_has_no_mistake(self):
        self.assertEqual(self.check(self.text), [])

    def test_it_is_read(self):
        meshes, others = items_below(self.text, PARTS[0]), items_below(self.text, PARTS[1])
        self.assertGreater(len(meshes), 30)
        self.assertGreater(len(others), 15)
        self.assertGreater(len(self.factors), 15)

    def test_a_planted_mistake_is_found(self):
        file = dict(items_below(self.text, "Tests"))["a"].split("`")[1]
        self.assertEqual(self.check(self.text.replace(f"- `a`: `{file}`", "- `a`: `tests/absent.cpp`")),
                         ["\"a\": there is no test tests/absent.cpp"])
        message = re.search(r'"([^"]+)"', dict(items_below(self.text, "Other letters"))["R"]).group(1)
        self.assertEqual(self.check(self.text.replace(f'"{message}"', '"words of no message"')),
                         ["\"R\": no file in src has \"words of no message\""])


if __name__ == "__main__":
    unittest.main()
