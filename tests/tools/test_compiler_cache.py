# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/compiler_cache.sh: what a clone finds of what another one compiled."""
import filecmp
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ["-O1", "-march=native", "-DNUMBER=1"]


class CompilerCache(unittest.TestCase):
    def setUp(self):
        if not shutil.which("ccache"):
            self.skipTest("there is no ccache")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        self.log = self.folder / "log"
        self.clones = [self.clone("first"), self.clone("second")]

    def clone(self, name):
        clone = self.folder / name
        (clone / "tools").mkdir(parents=True)
        (clone / "build").mkdir()
        shutil.copy(ROOT / "tools/compiler_cache.sh", clone / "tools")
        (clone / "size.hpp").write_text("constexpr int size = 3;\n")
        (clone / "a.cpp").write_text('#include "size.hpp"\nconst char* file() { return __FILE__; }\nint f() { return NUMBER * size; }\n')
        # as CMake makes the text of a batch
        (clone / "build/batch.cpp").write_text(f'#include "{clone}/a.cpp"\n')
        return clone

    def compile(self, clone, *options, compiler="g++", **environment):
        """The kinds of results that ccache logs, or [] if it was not used."""
        self.log.unlink(missing_ok=True)
        variables = {**os.environ, "XDG_CACHE_HOME": f"{self.folder}/cache", "CCACHE_STATSLOG": str(self.log),
                     "COEUS_NO_CACHE": "", "CCACHE_DIR": "", **environment}
        done = subprocess.run([clone / "tools/compiler_cache.sh", compiler, *(options or OPTIONS), f"-I{clone}",
                               f"-ffile-prefix-map={clone}/=", "-c", f"{clone}/build/batch.cpp", "-o", "batch.o"],
                              cwd=clone / "build", capture_output=True, text=True,
                              env={name: value for name, value in variables.items() if value is not None})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue((clone / "build/batch.o").is_file())
        lines = self.log.read_text().split() if self.log.is_file() else []
        return {kind for kind in lines if kind in ("direct_cache_hit", "preprocessed_cache_hit", "cache_miss")}

    def is_found(self, *arguments, **environment):
        kinds = self.compile(*arguments, **environment)
        self.assertEqual(len(kinds), 1, kinds)
        return kinds != {"cache_miss"}

    def test_another_clone_finds_the_same_object(self):
        first, second = self.clones
        self.assertFalse(self.is_found(first))
        self.assertTrue(self.is_found(second))
        self.assertTrue(filecmp.cmp(first / "build/batch.o", second / "build/batch.o", False))
        # and it is what that clone's compiler makes
        self.assertEqual(self.compile(second, COEUS_NO_CACHE="1"), set())
        self.assertTrue(filecmp.cmp(first / "build/batch.o", second / "build/batch.o", False))

    def test_a_changed_header_macro_or_processor_is_not_found(self):
        first, second = self.clones
        self.compile(first)
        self.assertFalse(self.is_found(second, "-O1", "-march=native", "-DNUMBER=2"))
        self.assertFalse(self.is_found(second, "-O1", "-march=x86-64", "-DNUMBER=1"))
        self.assertFalse(self.is_found(second, "-O2", "-march=native", "-DNUMBER=1"))
        (second / "size.hpp").write_text("constexpr int size = 4;\n")
        self.assertFalse(self.is_found(second))

    def test_native_means_another_processor(self):
        # a compiler that says what `native` means here, and another time something else
        compiler = self.folder / "g++"
        compiler.write_text("#!/bin/sh\ncase \"$*\" in *'-###'*) echo \"$PROCESSOR\" >&2 ;; *) exec g++ \"$@\" ;; esac\n")
        compiler.chmod(0o755)
        first, second = self.clones
        self.assertFalse(self.is_found(first, compiler=compiler, PROCESSOR="with AMX"))
        self.assertFalse(self.is_found(second, compiler=compiler, PROCESSOR="without"))
        self.assertTrue(self.is_found(second, compiler=compiler, PROCESSOR="with AMX"))

    def test_without_a_cache_it_compiles(self):
        first, _ = self.clones
        self.assertEqual(self.compile(first, COEUS_NO_CACHE="1"), set())
        self.assertEqual(self.compile(first, HOME=None, XDG_CACHE_HOME=None), set())
        # a folder of caches that cannot be made, as on a disk that is read-only
        (self.folder / "file").touch()
        self.assertEqual(self.compile(first, XDG_CACHE_HOME=f"{self.folder}/file"), set())
        self.assertEqual(self.compile(first, HOME=f"{self.folder}/file", XDG_CACHE_HOME=None), set())
        # no ccache in the PATH
        tools = self.folder / "bin"
        tools.mkdir()
        for name in ("sh", "g++", "as", "cksum", "mkdir"):
            (tools / name).symlink_to(shutil.which(name))
        self.assertEqual(self.compile(first, PATH=str(tools)), set())

    def test_warnings_as_errors_find_what_was_compiled_without(self):
        first, second = self.clones
        self.assertFalse(self.is_found(first, "-Wall", "-O1", "-DNUMBER=1"))
        self.assertTrue(self.is_found(second, "-Werror", "-Wall", "-O1", "-DNUMBER=1"))
        # a warning is shown again, or fails
        for clone in self.clones:
            (clone / "size.hpp").write_text("constexpr int size = 3;\nstatic int unused;\n")
        command = [first / "tools/compiler_cache.sh", "g++", f"-I{first}", "-DNUMBER=1", "-Wall", "-c",
                   f"{first}/build/batch.cpp", "-o", "batch.o"]
        for options, code in (([], 0), ([], 0), (["-Werror"], 1), ([], 0)):
            (first / "build/batch.o").unlink(missing_ok=True)
            done = subprocess.run(command + options, cwd=first / "build", capture_output=True, text=True,
                                  env={**os.environ, "XDG_CACHE_HOME": f"{self.folder}/cache", "CCACHE_DIR": "", "COEUS_NO_CACHE": ""})
            self.assertEqual(done.returncode, code, options)
            self.assertEqual(done.stderr.count("defined but not used"), 1, done.stderr)
            self.assertEqual((first / "build/batch.o").exists(), code == 0)

    def test_code_for_gpus(self):
        """As cmake/cuda.cmake compiles it, with and without warnings as errors; keep_ptxas.sh needs ptxas's report."""
        nvcc = subprocess.run([ROOT / "tools/find_nvcc.sh"], capture_output=True, text=True).stdout.strip()
        if not nvcc:
            self.skipTest("there is no nvcc")
        nvcc = Path(nvcc)
        options = re.search(r"set\(options\n(.*?)\)\n", (ROOT / "cmake/cuda.cmake").read_text(), re.DOTALL).group(1)
        options = re.sub(r"#.*", "", options).split()
        kinds, reports = [], []
        for clone, werror in ((self.clones[0], []), (self.clones[1], ["-Werror", "all-warnings"]), (self.clones[0], [])):
            (clone / "a.cu").write_text('#include "size.hpp"\n__global__ void k(int* x) { *x = size; }\n')
            self.log.unlink(missing_ok=True)
            done = subprocess.run([clone / "tools/compiler_cache.sh", nvcc, "-forward-unknown-to-host-compiler", f"-I{clone}",
                                   *(option.replace("${PROJECT_SOURCE_DIR}", str(clone)) for option in options),
                                   *werror, "-c", f"{clone}/a.cu", "-o", "a.o"], cwd=clone / "build", capture_output=True, text=True,
                                  env={**os.environ, "XDG_CACHE_HOME": f"{self.folder}/cache", "CCACHE_STATSLOG": str(self.log),
                                       "COEUS_NO_CACHE": "", "CCACHE_DIR": ""})
            self.assertEqual(done.returncode, 0, done.stderr)
            kinds.append("cache_miss" in self.log.read_text())
            reports.append("registers" in done.stderr)
        self.assertEqual((kinds, reports), ([True, False, False], [True, True, True]))

    def test_a_cache_that_the_user_chose(self):
        first, second = self.clones
        own = self.folder / "own"
        self.assertFalse(self.is_found(first, CCACHE_DIR=str(own)))
        self.assertTrue(own.is_dir())
        self.assertFalse((self.folder / "cache/coeus").exists())
        self.assertTrue(self.is_found(second, CCACHE_DIR=str(own)))
