# SPDX-License-Identifier: Apache-2.0
"""Tests `make install`: install.py BUILD_FOLDER MPIRUN [its options]. It installs Coeus into a temporary folder and
uses it from there: man page, completions, links of documents, headers, pkg-config, CMake, and examples/custom_model,
which has its own model family and must give the losses of one rank on every mesh."""
import filecmp
import json
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
sys.path.insert(0, str(ROOT / "tools"))

import check_documents  # noqa: E402

BUILD = MPIRUN = ""
ANY_NAME = """#include "coeus/apps/run_program.hpp"
%s
#include "coeus/models/registry.hpp"
int main(int argc, char** argv) {
    return coeus::run_program(argc, argv, [] {
        coeus::ModelFamily family = coeus::find_family("llama2");
        family.name = "llama3";
        coeus::register_family(family);
    });
}
"""
CONTAINING = """cmake_minimum_required(VERSION 3.25)
project(containing LANGUAGES C CXX)
set(COEUS_BUILD_TESTS OFF)
add_subdirectory(%s coeus)
add_executable(my_program any_name.cpp)
target_link_libraries(my_program PRIVATE Coeus::coeus)
"""


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          stdin=subprocess.DEVNULL, **options)
    return done.returncode, done.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="coeus-install-")
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = Path(cls.temporary.name).resolve()
        cls.prefix = cls.folder / "the prefix"
        code, output = run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        if code != 0: raise AssertionError(output)
        cls.program = cls.prefix / "bin/coeus"

    def done(self, *command, **options):
        """Runs a command that must succeed, and returns its output."""
        code, output = run(*command, **options)
        self.assertEqual(code, 0, f"{' '.join(map(str, command))}\n{output}")
        return output

    def commands(self):
        names = re.findall(r"^  ([a-z]+) ", self.done(self.program, "help").split("\n\n")[2], re.MULTILINE)
        self.assertIn("train", names)
        return names

    def test_the_program_is_that_of_the_build_and_finds_its_decks(self):
        self.assertEqual(self.done(self.program, "--version"), self.done(Path(BUILD) / "coeus", "--version"))
        deck = self.prefix / "share/coeus/inputs/base/llama3_8b.toml"
        self.assertIn("Mesh: 64 ranks", self.done(self.program, "train", deck, "--dry_run", "--ranks", "64"))
        self.assertIn("#SBATCH", self.done(self.program, "sbatch", self.prefix / "share/coeus/inputs/llama3_debug.toml",
                                           "--machine", "generic", "--nodes", "1", "--gpus-per-node", "0",
                                           "--ntasks-per-node", "2"))

    def test_packagers_install_a_component_elsewhere(self):
        stage = self.folder / "stage"
        self.done("cmake", "--install", BUILD, "--prefix", "/usr", "--component", "program",
                  env=os.environ | {"DESTDIR": str(stage)})
        self.assertTrue((stage / "usr/bin/coeus").is_file())
        self.assertFalse((stage / "usr/include").exists())

    def test_make_install_takes_a_prefix(self):
        """As doc/library.md says; without its first step, which builds."""
        make = self.folder / "make"
        make.mkdir()
        shutil.copy(ROOT / "Makefile", make)
        (make / "build").symlink_to(BUILD)
        self.done("make", "-o", "release", "install", f"PREFIX={self.folder}/own", cwd=make)
        self.assertEqual(self.done(self.folder / "own/bin/coeus", "--version"), self.done(self.program, "--version"))
        self.done("make", "-o", "release", "install", "PREFIX=/usr", cwd=make,
                  env=os.environ | {"DESTDIR": str(self.folder / "packaged")})
        names = [[str(path.relative_to(place)) for path in sorted(place.rglob("*"))]
                 for place in (self.folder / "own", self.folder / "packaged/usr")]
        self.assertIn("bin/coeus", names[0])
        self.assertIn("include/coeus/apps/run_program.hpp", names[0])
        self.assertEqual(*names)

    def test_a_project_that_contains_the_sources(self):
        """It is configured, and its program is compiled but not linked, since that builds all of Coeus."""
        if not shutil.which("ninja"): self.skipTest("there is no ninja")
        project = self.folder / "project"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(CONTAINING % ROOT)
        (project / "any_name.cpp").write_text(ANY_NAME % "")
        cache = (Path(BUILD) / "CMakeCache.txt").read_text()
        same = [f"-D{line}" for line in re.findall(r"^(?:CMAKE_CXX_COMPILER|COEUS_MPI|COEUS_ARCH):\w+=.+", cache, re.MULTILINE)]
        self.done("cmake", "-G", "Ninja", "-S", project, "-B", project / "build", *same)
        self.done("ninja", "-C", project / "build", "CMakeFiles/my_program.dir/any_name.cpp.o")
        linked = self.done("ninja", "-C", project / "build", "-t", "query", "my_program")
        self.assertIn("libcoeus_apps.a", linked)
        self.assertIn("libcoeus_base.a", linked)

    def test_the_man_page_renders(self):
        page = self.prefix / "share/man/man1/coeus.1"
        if shutil.which("mandoc"):
            text = self.done("mandoc", "-T", "utf8", page)
        elif shutil.which("groff"):
            text = self.done("groff", "-man", "-Tutf8", "-ww", "-P-cbou", page)
            self.assertNotIn("warning:", text)
        else:
            self.skipTest("there is neither mandoc nor groff")
        text = re.sub(r"\s+", " ", text)
        for command in self.commands(): self.assertIn(f" {command} coeus {command} ", text)
        self.assertIn("--dry_run", text)
        self.assertNotIn("\\-", text)

    def complete(self, *words):
        """Returns the completions that bash offers for the last word; bash treats = as a word."""
        script = ('. "$0"; compopt() { :; }; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _coeus; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        return self.done("bash", "-c", script, self.prefix / "share/bash-completion/completions/coeus", "coeus",
                         *words).split()

    def test_bash_completes(self):
        self.assertEqual(self.complete("sch"), ["schedule"])
        self.assertEqual(self.complete("train", "--dry"), ["--dry_run"])
        self.assertEqual(self.complete("train", "x.toml", "--training.seq"), ["--training.seq_len="])
        self.assertIn("--checkpoint.no_enable", self.complete("train", "--checkpoint.no_"))
        self.assertEqual(self.complete("train", "--model.name", "=", "llama4"), ["llama4"])
        self.assertEqual(self.complete("generate", "--device", "c"), ["cuda", "cpu"])
        self.assertEqual(self.complete("help", "opt"), ["options"])
        self.assertEqual(self.complete("tokenize", "--training"), [])

    def test_every_flag_that_is_completed_is_known(self):
        for command in self.commands():
            flags = [word.rstrip("=") for word in self.complete(command, "--") if "." not in word and word != "--device="]
            self.assertIn("--help", flags)
            for flag in set(flags) - {"--help"}:
                self.assertNotIn("unknown option", run(self.program, command, flag + "=1", cwd=self.folder)[1])
            self.assertIn("unknown option", run(self.program, command, "--no_such_flag=1", cwd=self.folder)[1])

    def test_zsh_reads_its_completion(self):
        script = self.prefix / "share/zsh/site-functions/_coeus"
        self.assertTrue(script.read_text().startswith("#compdef coeus\n"))
        if not shutil.which("zsh"): self.skipTest("there is no zsh")
        self.done("zsh", "-n", script)

    def test_links_between_documents_hold(self):
        """The same links must work as in the source tree, from both places of the documents."""
        for documents in (self.prefix / "share/coeus", self.prefix / "share/doc/coeus"):
            found = [Path(folder, name).relative_to(documents) for folder, _, names in os.walk(documents, followlinks=True)
                     for name in names if name.endswith(".md")]
            self.assertIn(Path("doc/library.md"), found)
            for path in found:
                text = (documents / path).read_text()
                here, there = (check_documents.check_links(path, text, root) for root in (documents, ROOT))
                self.assertEqual(here, there)

    def test_headers_compile_from_the_prefix_alone(self):
        """tools/check_headers.py compiles each header of the source tree; the installed ones are equal and need no others."""
        headers = sorted(path.relative_to(self.prefix / "include") for path in (self.prefix / "include").rglob("*.hpp"))
        self.assertGreater(len(headers), 150)
        for header in headers:
            self.assertTrue(filecmp.cmp(self.prefix / "include" / header, ROOT / "include" / header, False), header)
        source = self.folder / "any_name.cpp"
        source.write_text(ANY_NAME % "\n".join(f'#include "{header}"' for header in headers))
        if not shutil.which("pkg-config"): self.skipTest("there is no pkg-config")
        path = os.pathsep.join([str(self.prefix / "lib/pkgconfig"), os.environ.get("PKG_CONFIG_PATH", "")])
        flags = self.done("pkg-config", "--cflags", "--libs", "coeus", env=os.environ | {"PKG_CONFIG_PATH": path})
        compiler = os.environ.get("CXX", "c++")
        self.done("sh", "-ec", f'{compiler} -O0 -Wall -Wextra -Werror "$0" -o "$1" {flags}', source, self.folder / "any_name")
        # a model name that is already taken is refused with a message
        code, output = run(self.folder / "any_name", "help")
        self.assertEqual(code, 2, output)
        self.assertIn('a model family cannot be registered as "llama3": this name is taken', output)

    def losses(self, name, ranks, steps, *options):
        """Returns the losses of all steps of a run in float64. An existing run continues."""
        command = [*MPIRUN.split(), "-n", str(ranks)] if ranks > 1 else []
        self.done(*command, self.example / "build/primer", "train", ROOT / "examples/custom_model/primer.toml",
                  f"--job.dump_folder={name}", f"--training.steps={steps}", "--training.dtype=float64",
                  "--training.threads=1", "--metrics.log_freq=1", *options, cwd=self.example)
        lines = [json.loads(line) for line in (self.example / name / "metrics.jsonl").read_text().splitlines()]
        return {line["step"]: line["loss"] for line in lines if "loss" in line}

    def assert_same(self, losses, expected):
        self.assertEqual(losses.keys(), expected.keys())
        for step, loss in losses.items():
            self.assertLessEqual(abs(loss - expected[step]), 1e-11 * expected[step], step)

    def test_a_family_of_its_own(self):
        example = ROOT / "examples/custom_model"
        lines = sum(len((example / name).read_text().splitlines())
                    for name in ("squared_relu.hpp", "main.cpp", "CMakeLists.txt", "primer.toml"))
        self.assertLessEqual(lines, 150)
        type(self).example = self.folder / "example"
        output = self.done(example / "run.sh", self.example, self.program, env=os.environ | {"STEPS": "8"})
        self.assertIn("Mesh: 2 ranks: dp_shard 2", output)
        self.assertIn("Mesh: 2 ranks: tp 2", output)
        self.assertIn("Resuming from ./outputs/checkpoint/step-00000004.h5: step 4", output)
        self.assertIn("A small fox", output)
        one = self.losses("one", 1, 6)
        self.assertEqual(len(one), 6)
        self.assertLess(one[6], one[1] - 0.5)
        self.assert_same(self.losses("fsdp", 2, 6), one)
        self.assert_same(self.losses("recomputed", 2, 6, "--activation_checkpoint.mode=full",
                                     "--parallelism.pipeline_parallel_degree=2"), one)
        self.losses("moved", 2, 3)
        self.assert_same(self.losses("moved", 2, 6, "--parallelism.tensor_parallel_degree=2"), one)
        info = self.done(self.example / "build/primer", "info", "moved/checkpoint/step-00000006.h5", cwd=self.example)
        self.assertIn("model/layers.3.feed_forward.w2.weight", info)
        self.assertNotIn("feed_forward.w3", info)
        code, output = run(self.program, "generate", "--checkpoint", "moved", cwd=self.example)
        self.assertEqual(code, 2)
        self.assertIn('model.name = "primer": there is no such model', output)  # the program without this family
        code, output = run(self.example / "build/primer", "convert", "moved", "hub", cwd=self.example)
        self.assertEqual(code, 2)
        self.assertIn("this family has no form in Hugging Face folders", output)


if __name__ == "__main__":
    BUILD, MPIRUN = os.path.abspath(sys.argv[1]), " ".join(sys.argv[2:])
    os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    sys.argv[1:] = []
    unittests.main()
