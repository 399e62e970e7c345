# SPDX-License-Identifier: Apache-2.0
"""Tests of tests/mutants/plant.py: the check of its list."""
import contextlib
import io
import sys
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mutants"))
import plant  # noqa: E402

HERE = "tests/mutants/plant.py"


class Check(unittest.TestCase):
    def check(self, regex, *tests):
        """(exit code, output) of the check of one mutant in a build with these tests."""
        old = next(line.strip() for line in (plant.sources / HERE).read_text().splitlines() if line.startswith("import argparse"))
        mutant = plant.Mutant(["name: a bug", f"file: {HERE}", f"- {old}", f"tests: {regex}"], 1)
        said = io.StringIO()
        with mock.patch.object(plant, "mutants", lambda: [mutant]), mock.patch.object(plant, "test_names", lambda build: list(tests)), \
                contextlib.redirect_stdout(said):
            return plant.check("a-build"), said.getvalue()

    def test_a_test_that_does_not_exist(self):
        self.assertEqual(self.check("^unit/io", "unit/io:a")[0], 0)
        code, said = self.check("^unit/oi", "unit/io:a", "gpu/traffic:a")
        self.assertEqual(code, 1)
        self.assertIn("no test matches \"^unit/oi\"", said)

    def test_programs_that_are_built_only_if_kernels_are_reached(self):
        for regex in ("^gpu/traffic", "^gpu/traffic:no kernel", "^unit/kernels_v3:a"):
            self.assertEqual(self.check(regex, "unit/io:a", "test_traffic_NOT_BUILT-b12d07c")[0], 0)
        # if they are built, their names count
        self.assertEqual(self.check("^gpu/traffic:no kernel", "gpu/traffic:no kernel moves more")[0], 0)
        self.assertEqual(self.check("^gpu/traffic:no kernle", "gpu/traffic:no kernel moves more")[0], 1)
