# SPDX-License-Identifier: Apache-2.0
"""Compares the commands in the README of each example with those that its run.sh calls. Programs that only record how they
are called take the place of coeus, mpirun and cmake, so that nothing has to be built."""
import json
import os
import re
import shlex
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# records its arguments, and makes the files that the scripts look for
STAND_IN = '''#!/usr/bin/env python3
import json, os, re, shutil, sys
from pathlib import Path
name, arguments = Path(sys.argv[0]).name, sys.argv[1:]
if arguments == ["--version"]: sys.exit(print("Open MPI"))
with open(os.environ["COMMANDS"], "a") as log: print(json.dumps([sys.argv[0], *arguments]), file=log)
def value(option, default):
    found = re.search(r"(?:^| )--" + option + r"[= ](\\S+)", " ".join(arguments))
    return found.group(1) if found else default
if "train" in arguments:
    folder, step = Path(value(r"job\\.dump_folder", "outputs"), "checkpoint"), int(value(r"training\\.steps", ""))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"step-{step:08}.h5").touch()
    (folder / f"hf-{step:08}").mkdir(exist_ok=True)
elif name == "cmake" and "--build" in arguments:
    Path("build").mkdir(exist_ok=True)
    shutil.copy(sys.argv[0], "build/primer")
elif value("output", ""):
    Path(value("output", "")).touch()
sys.exit("wrong.csv" in arguments)
'''


class Command:
    """A command as words and options, whatever their order."""

    def __init__(self, arguments):
        self.words, self.options = [], {}
        arguments = list(arguments)
        while arguments:
            word = arguments.pop(0)
            if not word.startswith("--"):
                self.words.append(word)
                continue
            name, equals, value = word.partition("=")
            if not equals and arguments and not arguments[0].startswith("-"): value = arguments.pop(0)
            self.options[name] = value

    def __repr__(self):
        return " ".join([*self.words, *(f"{name} {value}".strip() for name, value in self.options.items())])


def commands_of_readme(text):
    """The commands of ```sh blocks."""
    found = []
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words:
                end = words.index("&&") if "&&" in words else len(words)
                found.append(Command(words[:end]))
                words = words[end + 1:]
    return found


def options_of_deck(text):
    """{"--section.option": "value"}"""
    found, section = {}, ""
    for line in text.splitlines():
        heading, option = re.match(r"\[([\w.]+)\]", line), re.match(r"(\w+) = ([^#]*)", line)
        if heading: section = heading.group(1)
        if option: found[f"--{section}.{option.group(1)}"] = option.group(2).strip().strip('"')
    return found


def is_call(said, called, deck):
    """Whether the command of a README is the one that run.sh called. An option that the README leaves out must be in the
    deck, with the same value. PREFIX in a README stands for any path."""
    patterns = [re.escape(word).replace("PREFIX", ".*") for word in said.words]
    if len(patterns) != len(called.words) or not all(map(re.fullmatch, patterns, called.words)): return False
    left_out = {name: value for name, value in called.options.items() if name not in said.options}
    return (all(called.options.get(name) == value for name, value in said.options.items())
            and all(deck.get(name) == value for name, value in left_out.items()))


def differences(text, calls, deck):
    """The commands of a README that run.sh does not call, or calls in another order."""
    found, at = [], 0
    for said in commands_of_readme(text):
        place = next((i for i in range(at, len(calls)) if is_call(said, calls[i], deck)), None)
        if place is None: found.append(said)
        else: at = place + 1
    return found


class Examples(unittest.TestCase):
    def calls_of(self, example):
        """The commands that run.sh calls, as a README would write them."""
        with tempfile.TemporaryDirectory(prefix="coeus-examples-") as folder:
            folder = Path(folder).resolve()
            for name in ("bin/coeus", "bin/mpirun", "bin/cmake"):
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_text(STAND_IN)
                (folder / name).chmod(0o755)
            settings = {name: value for name, value in os.environ.items() if name not in ("STEPS", "BASE_STEPS", "HUB")}
            settings |= {"COMMANDS": str(folder / "commands"), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
            done = subprocess.run([example / "run.sh", folder / "data", folder / "bin/coeus"], env=settings, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertEqual(done.returncode, 0, done.stdout)
            calls = [json.loads(line) for line in (folder / "commands").read_text().splitlines()]

        def plain(word):
            for place in (f"{folder}/bin/", f"{folder}/data/", f"{example}/", f"{ROOT}/"): word = word.replace(place, "")
            return word

        skipped = ("--oversubscribe", "--bind-to", "none")  # of mpirun
        return [Command(plain(word) for word in call if word not in skipped) for call in calls]

    def test_readmes_have_the_commands_of_their_scripts(self):
        examples = sorted(path.parent for path in (ROOT / "examples").glob("*/run.sh"))
        self.assertGreaterEqual(len(examples), 5)
        for example in examples:
            text = (example / "README.md").read_text()
            deck = options_of_deck(next(example.glob("*.toml")).read_text())
            self.assertIn(f"    examples/{example.name}/run.sh ", text)
            calls = self.calls_of(example)
            self.assertEqual(differences(text, calls, deck), [], f"{example.name}/run.sh calls: {calls}")

    def test_a_difference_is_found(self):
        calls = [Command(["coeus", "tokenize", "a.txt", "--output", "b.h5"]),
                 Command(["mpirun", "-n", "2", "coeus", "train", "a.toml", "--training.steps=4", "--a.b=1"])]
        deck = options_of_deck('[training]\nsteps = 4   # few\n[a]\nb = "1"\n')
        good = "```sh\ncoeus tokenize a.txt \\\n    --output b.h5  # it's text\nmpirun -n 2 coeus train a.toml --a.b=1\n```\n"
        self.assertEqual(differences(good, calls, deck), [])
        for old, new in (("-n 2", "-n 4"), ("b.h5", "c.h5"), ("a.b=1", "a.b=2"), (" --output b.h5", ""), ("train", "info"),
                         ("train a.toml", "train a.toml --dry_run")):
            self.assertEqual(len(differences(good.replace(old, new), calls, deck)), 1, new)
        self.assertEqual(len(differences(good, calls[::-1], deck)), 1)
        self.assertEqual(len(differences(good, calls, deck | {"--training.steps": "5"})), 1)


if __name__ == "__main__":
    unittest.main()
