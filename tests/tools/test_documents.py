# SPDX-License-Identifier: Apache-2.0
"""Tests the checks of prose and of documents: each rule finds its violations in each kind of file, and names the line."""
import io
import subprocess
import sys
import tempfile
import unittest
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))

import check_documents  # noqa: E402
import check_prose  # noqa: E402

# for each phrase, in the same order: a sentence for each of its forms
BAD = [
    ["Of GPUs is written below."],
    ["A barrier comes behind the sum.", "Behind it is a barrier."],
    ["The run begins anew."],
    ["The run goes on from the checkpoint.", "Going on is easy.", "It went on.", "They go on."],
    ["Where the file is absent, the run ends."],
    ["It reads the file where there is one.", "It ends where nothing is left.", "It stops where no pair is left."],
    ["The folder is no checkpoint.", "These are no checkpoints.", "It was no text."],
    ["The rank comes to a loss.", "They come to it.", "It came to an end."],
    ["The rate is said at the start.", "That was said before.", "It has been said."],
    ["The save is through.", "They are through."],
    ["The file stands under its name.", "It stood there.", "They stand there."],
    ["The copy is beside the step.", "They are beside it."],
    ["The file is passed over.", "They pass over it."],
    ["A class for who writes alone.", "It saves by itself alone."],
]
GOOD = [
    "A list of GPUs is below.",
    "F stands for forward; a stand-in takes its place.",
    "There is no checkpoint in the folder.",
    "A later step is no longer saved.",
    "Where does the time go?",
    "The folder where checkpoints are saved.",
    "It goes through the file and passes the rows on.",
]


class Prose(unittest.TestCase):
    def wrapped(self, sentence):
        """The sentence in each kind of file: (name, text, line of the sentence)."""
        two = sentence.replace(" ", "\n// ", 2).replace("\n// ", " ", 1)
        yield "doc/a.md", f"# Title\n\nA text. {sentence}\n", 3
        yield "doc/b.md", f"- A list.\n- {sentence}\n", 2
        yield "src/base/a.cpp", f"int a;  // {sentence}\n", 1
        yield "include/coeus/base/a.hpp", f"\n/// {two}\nint a;\n", 2
        yield "src/base/b.cpp", f'\nlog::info("{sentence}");\n', 2
        yield "src/base/c.cpp", f'int a; /* {sentence} */ int b;\n', 1
        yield "src/base/d.cpp", f'/**\n * A text.\n * {sentence}\n */\n', 3
        yield "src/base/e.cpp", f'const char* a = R"(# Title\n\n{sentence}\n)";\n', 3
        yield "src/base/f.cpp", f'f("/*", R"x(\nA "text". {sentence}\n)x");\n', 2
        yield "tests/unit/a.cpp", f'\n\nTEST_CASE("x. {sentence}") {{\n', 3
        yield "tools/a.py", f'"""{sentence}"""\n', 1
        yield "tools/a.sh", f"#!/bin/sh\n# {sentence}\n", 2
        yield "cmake/a.cmake", f"set(a 1) # {sentence}\n", 1
        yield "tests/CMakeLists.txt", f'message(STATUS "{sentence}")\n', 1
        yield "tools/b.sh", f'#!/bin/sh\necho "{sentence}" >&2\n', 2
        yield "Makefile", f"help:\n\t@echo '{sentence}'\n", 2
        yield "tools/b.py", f'import sys\nsys.exit("{sentence}")\n', 2
        yield "inputs/a.toml", f'a = "x y"   # {sentence}\n', 1

    def test_there_is_a_sentence_for_each_phrase(self):
        self.assertEqual(len(BAD), len(check_prose.PHRASES))

    def test_each_phrase_is_found_everywhere(self):
        for sentences, (_, what, instead) in zip(BAD, check_prose.PHRASES):
            for sentence in sentences:
                for name, text, line in self.wrapped(sentence):
                    found = check_prose.check(Path(name), text)
                    self.assertEqual(len(found), 1, (name, sentence, found))
                    self.assertRegex(found[0], rf"^{name}:({line}|{line + 1}): ")  # it may begin on the second line
                    self.assertTrue(found[0].endswith(f"{what}; write: {instead}"), found)

    def test_the_script_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "a.md").write_text("A text.\n")
            subprocess.run(["git", "init", "-q"], cwd=root, check=True)
            self.assertEqual(self.exit_code(root), 0)
            (root / "a.md").write_text(f"A text.\n\n{BAD[1][0]}\n")
            self.assertEqual(self.exit_code(root), 1)
        self.assertIn("check prose tools/check_prose.py\ncheck documents tools/check_documents.py\n"
                      "check pictures tools/pictures.py --check\n",
                      (ROOT / "tools/lint.sh").read_text())

    def exit_code(self, root):
        with mock.patch.object(check_prose.sources, "ROOT", root), redirect_stdout(io.StringIO()), \
                mock.patch.object(sys, "argv", ["check_prose.py"]):
            return check_prose.main()

    def test_good_sentences(self):
        for sentence in GOOD:
            for name, text, _ in self.wrapped(sentence):
                self.assertEqual(check_prose.check(Path(name), text), [])

    def test_code_is_not_prose(self):
        self.assertEqual(check_prose.check(Path("doc/a.md"), "`Of x`\n\n```\nOf x\n```\n\n    Of x\n"), [])
        self.assertEqual(check_prose.check(Path("src/a.cpp"), 'f("behind");\n#include "behind a.hpp"\n'), [])
        self.assertEqual(check_prose.check(Path("src/a.cpp"), "void f(int /*behind*/);\n// a/*.x\n")[0][:11], "src/a.cpp:1")
        self.assertEqual(check_prose.check(Path("src/a.cpp"), "// a/*.x\nint behind = 1'000 * '\"' * /**/ 2;\n// b*/\n"), [])
        self.assertEqual(check_prose.check(Path("tests/unit/a.cpp"), 'f(R"(\nbehind\n)");\n'), [])

    def test_names_of_tests_begin_in_lower_case(self):
        self.assertEqual(check_prose.check(Path("tests/mpi/a.cpp"), '\nTEST_CASE(\n    "The sum is exact") {\n'),
                         ["tests/mpi/a.cpp:2: a test's name begins with \"The\"; write: a small letter"])
        self.assertEqual(check_prose.check(Path("tests/unit/a.cpp"), 'TEST_CASE("GPUs: a sum is exact", "[The x]") {\n'), [])

    def test_columns(self):
        self.assertEqual(check_prose.check(Path("doc/a.md"), "x" * 120 + "\n"), [])
        self.assertEqual(check_prose.check(Path("doc/a.md"), "a\n" + "x" * 121 + "\n"), ["doc/a.md:2: 121 columns"])
        row = "| " + "x" * 121
        self.assertEqual(check_prose.check(Path("doc/a.md"), row + "\n"), ["doc/a.md:1: 123 columns"])
        self.assertEqual(check_prose.check(Path("doc/a.md"), f"<!-- Generated by x -->\n{row}\na{row}\n"),
                         ["doc/a.md:3: 124 columns"])
        for name, sign in (("src/a.cpp", "// "), ("tools/a.py", "# "), ("src/b.cpp", "/* ")):
            end = " */" if sign == "/* " else ""
            self.assertEqual(check_prose.check(Path(name), sign + "x" * (120 - len(end)) + end + "\n"),
                             [f"{name}:1: a comment of {120 + len(sign)} columns"])


class Documents(unittest.TestCase):
    KNOWN = check_documents.Known()

    def check(self, text, name="doc/a.md"):
        return check_documents.check(Path(name), text, self.KNOWN)

    def test_good(self):
        self.assertEqual(self.check("[a](decks.md) [b](../README.md#recipes) [c](https://example.org/x)\n"), [])
        self.assertEqual(self.check("`training.steps = 10`, `--training.steps=10`, `--checkpoint.no_enable`\n"), [])
        self.assertEqual(self.check("    build/coeus train my.toml --dry_run --ranks 4   # --nothing\n    make run\n"), [])
        self.assertEqual(self.check("`checkpoint.cpp`, `model.h5`, `coeus help train`, `COEUS_ARCH=x make`\n"), [])
        self.assertEqual(self.check("`coeus sbatch x.toml --training.steps=1 --mem 0`, `make -j 4 PREFIX=x install`\n"), [])
        self.assertEqual(self.check("`src/*/x.cpp`, `doc/NAME.md`, `inputs/<name>.toml`, `tests/{a,b}`, `src/base/log.cpp:12`, "
                                    "`x/src/nothing.cpp`, `tests/tools/`, `src`\n"), [])

    def test_findings(self):
        cases = {
            "the link leads to nowhere.md, which does not exist": "[a](nowhere.md)",
            "../README.md has no heading #nothing": "[a](../README.md#nothing)",
            "there is no option --training.stepz": "`--training.stepz=1`",
            "there is no option training.stepz": "`training.stepz = 1`",
            "there is no command coeus trane": "`coeus trane my.toml`",
            "there is no flag --promt of coeus generate": "`coeus generate --promt x`",
            "there is no flag --prompt of coeus train": "`coeus train my.toml --prompt x`",
            "there is no flag --dry_run of coeus sbatch": "`build/coeus sbatch my.toml --dry_run && make test`",
            "there is no flag --force of coeus": "`coeus --force`",
            "there is no flag --zshell of coeus help": "`coeus help --zshell`",
            "coeus convert takes no options of a deck, such as --training.steps": "`coeus convert a b --training.steps=1`",
            "the Makefile has no target teste": "`make teste`",
            "the Makefile has no target build-all": "`A=b make -j 4 build-all`",
            "the Makefile has no target lin": "`make -j8 B=c lin`",
            "the Makefile has no target runn": "`make && sudo make -j runn`",
            "there is no src/base/no_such_file.cpp": "`src/base/no_such_file.cpp`",
            "there is no doc/no_such_page.md": "`doc/no_such_page.md:12`",
            "there is no tools/no_such_tool.py": "`python3 tools/no_such_tool.py x`",
            "there is no tests/no_such_folder/": "`tests/no_such_folder/`",
            "there is no examples/no_such_example/run.sh": "`examples/no_such_example/run.sh`",
            "there is no inputs/no_such_deck.toml": "`coeus train inputs/no_such_deck.toml`",
        }
        for what, text in cases.items():
            self.assertEqual(self.check(f"x\n{text}\n"), [f"doc/a.md:2: {what}"])
            if "link" not in what and "heading" not in what:
                self.assertEqual(self.check(f"```sh\n{text.strip('`')}\n```\n"), [f"doc/a.md:2: {what}"])

    def test_decks(self):
        good = """```toml
include = "a.toml"
[training]
steps = 1_000   # a = b
dataset_path = [
    "steps = 1"]
[[optimizer.param_groups]]
roles = ["norm"]
optimizer_kwargs = {lr = 1, betas = [1, 2]}
```
"""
        self.assertEqual(self.check(good), [])
        planted = {
            "includ =": (2, "there is no option includ"),
            "[trainin]": (3, "there is no section [trainin]"),
            "step =": (4, "there is no option training.step"),
            "training.steps =": (4, "there is no option training.training.steps"),
            "[[optimizer.param_group]]": (7, "there is no section [optimizer.param_group]"),
            "role =": (8, "there is no option optimizer.param_groups.role"),
        }
        replaced = ("include =", "[training]", "steps =", "steps =", "[[optimizer.param_groups]]", "roles =")
        for old, (new, (line, what)) in zip(replaced, planted.items()):
            self.assertIn(f"doc/a.md:{line}: {what}", self.check(good.replace(old, new, 1)))
        self.assertEqual(self.check("```\nstepz = 1\n```\n"), [])

    def test_flags_of_commands_are_read_from_the_sources(self):
        self.assertEqual(self.KNOWN.takes_options, {"train", "evaluate", "info", "products", "sbatch"})
        for command, flag in (("train", "dry_run"), ("generate", "stop"), ("schedule", "lowered"), ("report", "force"),
                              ("tokenizer", "vocab_size"), ("tokenize", "threads"), ("info", "newest_step"),
                              ("convert", "only"), ("sbatch", "gpus-per-node"), ("train", "device")):
            self.assertTrue(self.KNOWN.has_flag(command, flag), f"{command} --{flag}")
        self.assertFalse(self.KNOWN.has_flag("train", "force"))

    def test_the_changelog_may_name_removed_options(self):
        self.assertEqual(self.check("`--training.stepz`\n", "CHANGELOG.md"), [])


if __name__ == "__main__":
    unittest.main()
