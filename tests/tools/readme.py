# SPDX-License-Identifier: Apache-2.0
"""Runs the recipes of README.md, one after the other, in a fresh copy of the repository in another folder: readme.py
PROGRAM MPIRUN [its options]. The test makes the files that a reader would bring along (text, a model, a deck of
torchtitan). SHORTER has the only changes to the recipes: smaller numbers of steps."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import unittests

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("COEUS_SHARED", ROOT.parent / "shared"))
PROGRAM = ""
MPIRUN = ""
SHORTER = [("steps = 1000", "steps = 4"), ("interval = 100 ", "interval = 2 "), ("--training.steps=2000", "--training.steps=6"),
           ("--training.steps=100", "--training.steps=2")]
# the reasons for which a run of the two planned decks would be refused on this machine
NO_DATA = r"^training\.dataset_path: is not given, and training\.dataset = .* was not found"
NO_ASSETS = r"^model\.hf_assets_path = .*: this file or folder does not exist here; a run needs it"
SMALL_HOST = r"^a rank does not fit into the memory of the CPUs of this host: a run would be refused"
TITAN = """[model]
name = "llama3"
flavor = "8B"
tokenizer_path = "./tests/assets/tokenizer.model"
[optimizer]
lr = 3e-4
[training]
batch_size = 1
seq_len = 8192
warmup_steps = 200
steps = 1000
data_parallel_degree = -1
tensor_parallel_degree = 8
dataset = "c4"
[checkpoint]
enable_checkpoint = false
"""


def fences(text, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


class Recipes(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="coeus-readme-")
        self.addCleanup(self.temporary.cleanup)
        self.clone = Path(self.temporary.name) / "a clone" / "coeus"
        self.copy_repository()
        (self.clone / "build").mkdir()
        os.symlink(PROGRAM, self.clone / "build/coeus")
        self.readme = (self.clone / "README.md").read_text()
        self.output = ""

    def copy_repository(self):
        """Copies all files that a clone would have."""
        listed = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT,
                                capture_output=True)
        if listed.returncode != 0:  # an unpacked archive
            shutil.copytree(ROOT, self.clone, ignore=shutil.ignore_patterns("build*", ".git"))
            return
        for name in listed.stdout.decode().split("\0"):
            if not name or not (ROOT / name).is_file(): continue
            (self.clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.clone / name)

    def shell(self, command):
        """Returns the output of a command; the test fails if the command does."""
        command = re.sub(r"^mpirun ", MPIRUN + " ", command, flags=re.MULTILINE)
        if "oversubscribe" not in MPIRUN: command = command.replace(" --oversubscribe", "")
        done = subprocess.run(["sh", "-ec", command], cwd=self.clone, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def shorter(self, text):
        for long, short in SHORTER: text = text.replace(long, short)
        return text

    def assert_refused_only_for(self, output, *reasons):
        """A dry run found deck and mesh valid. A run would be refused, but only for these reasons, which depend on the
        machine. The first of them must be among the reasons."""
        warnings = re.findall(" - warning - (.*)", output)
        self.assertTrue(warnings, output)
        last = re.match(r"Dry run: deck and mesh are valid, but a run would be refused \((\d+) reasons? above\)", warnings[-1])
        self.assertTrue(last, output)
        found = [next((reason for reason in reasons if re.search(reason, line)), line) for line in warnings[:-1]]
        self.assertEqual((int(last.group(1)), found[0]), (len(found), reasons[0]), output)
        self.assertLessEqual(set(found), set(reasons), output)

    def test_length(self):
        self.assertLessEqual(len(self.readme.splitlines()), 150)

    def test_verbs_of_make(self):
        verbs = re.findall(r"^    make (\w+)", self.readme, re.MULTILINE)
        self.assertEqual(verbs, ["run", "test"])
        for verb in verbs + ["help", "install"]:
            self.assertTrue(self.shell(f"make -n {verb}").strip(), verb)
        self.assertIn("make install", self.shell("make help"))

    def test_recipes(self):
        recipes = [self.shorter(block) for block in fences(self.readme, "sh")]
        decks = [self.shorter(block) for block in fences(self.readme, "toml")]
        self.assertEqual((len(recipes), len(decks)), (6, 1), "own text, resume, Hugging Face, evaluate, plan, torchtitan")
        own_text, resume, hub, evaluate, plan, titan = recipes

        (self.clone / "my_text").mkdir()
        sources = [p.read_text() for p in sorted((self.clone / "src").rglob("*.cpp"))]
        (self.clone / "my_text/text.txt").write_text("\n".join(sources))
        (self.clone / "my.toml").write_text(decks[0])
        output = self.shell(own_text)
        self.assertIn("Training completed at step 4", output)
        self.assertRegex(output, r"Once upon\s*\S")  # it writes after the prompt
        self.assertIn("Loss (nats per token)", output)

        output = self.shell(resume)
        self.assertIn("Mesh: 4 ranks", output)
        self.assertIn("Resuming from ./outputs/checkpoint/step-00000004.h5: step 4", output)
        self.assertIn("Training completed at step 6", output)

        self.shell("build/coeus convert outputs Llama-3.2-1B")  # in place of a download
        output = self.shell(hub)
        self.assertIn("Starting from the weights of Llama-3.2-1B", output)
        self.assertIn("Training completed at step 2", output)
        self.assertTrue((self.clone / "tuned-hf/config.json").is_file())
        self.assertTrue((self.clone / "tuned-hf/tokenizer.json").is_file())

        (self.clone / "tasks.jsonl").write_text('{"query": "Return the", "choices": ["bytes", "horse"], "gold": 0}\n')
        (self.clone / "held_out.txt").write_text(sources[0][:2000])
        output = self.shell(evaluate)
        self.assertRegex(output, r"tasks +1 +[01]\.0000 ")
        self.assertRegex(output, r"held_out +1 +[\d,]+ +[\d,]+ +\d\.\d{4} ")
        self.assertIn("acc,none", (self.clone / "results.json").read_text())
        self.assertIn('"step":6,"task":"tasks"', (self.clone / "outputs/evaluation.jsonl").read_text())

        output = self.shell(plan)
        self.assertIn("Mesh: 256 ranks", output)
        self.assert_refused_only_for(output, NO_DATA, NO_ASSETS)
        self.assertIn("#SBATCH --nodes=4", (self.clone / "my.sbatch").read_text())

        deck = SHARED / "decks/torchtitan-2024/llama3_8b.toml"
        (self.clone / "titan.toml").write_text(deck.read_text() if deck.is_file() else TITAN)
        output = self.shell(titan)
        self.assertIn("Mesh: 64 ranks", output)
        self.assert_refused_only_for(output, NO_DATA, SMALL_HOST)

    def test_commands_within_the_text(self):
        commands = re.findall(r"`(build/coeus [^`\n]+)`", self.readme)
        self.assertIn("build/coeus help", commands)
        for command in commands:
            self.assertTrue(self.shell(command).strip(), command)


if __name__ == "__main__":
    PROGRAM, MPIRUN = os.path.abspath(sys.argv[1]), " ".join(sys.argv[2:])
    sys.argv[1:] = []
    unittests.main()
