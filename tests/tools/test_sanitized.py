# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/sanitized.py."""
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import reach  # noqa: E402
import sanitized  # noqa: E402

LIST = """# a comment

always unit/a:each kernel
part  unit/a:1
part  unit/a:2
part  unit/a:3
part  unit/a:4
part  unit/b:alone
rest  unit/b:long
"""
TESTS = {"unit/a:each kernel", "unit/a:1", "unit/a:2", "unit/a:3", "unit/a:4", "unit/b:alone", "unit/b:long",
         "unit/b:short", "mpi/c: 2 ranks"}


class Sanitized(unittest.TestCase):
    def test_choice(self):
        found = sanitized.listed(LIST)
        chosen = set()
        for seed in range(20):
            out = sanitized.left_out(found, str(seed))
            self.assertEqual(out, sanitized.left_out(found, str(seed)))
            self.assertIn("unit/b:long", out)
            self.assertNotIn("unit/a:each kernel", out)
            self.assertNotIn("unit/b:alone", out)  # of each folder at least one
            self.assertEqual(len(out), 3)  # two of four, and the rest
            chosen |= set(found["part"]) - set(out)
        self.assertEqual(chosen, set(found["part"]))

    def test_wrong_lines(self):
        for line, said in (("some unit/a:1", "a line is always, part or rest"), ("part mpi/c: 2 ranks", "a test of unit"),
                           ("part  unit/a:1", "\"unit/a:1\" is listed twice")):
            with self.assertRaisesRegex(SystemExit, "^tests/sanitized.txt:10: .*" + said):
                sanitized.listed(LIST + line)

    def test_findings(self):
        found = sanitized.listed(LIST)
        folders = ["unit/a", "unit/b"]
        self.assertEqual(sanitized.findings(found, TESTS, folders), [])
        self.assertEqual(sanitized.findings(found, TESTS - {"unit/a:3"}, folders),
                         ['tests/sanitized.txt: there is no test "unit/a:3"'])
        self.assertEqual(sanitized.findings(found, TESTS - {"unit/b:short"}, folders),
                         ["tests/sanitized.txt: no test of unit/b runs under sanitizers with every seed"])
        self.assertEqual(sanitized.findings(found, TESTS, folders + ["unit/empty"]),
                         ["tests/sanitized.txt: no test of unit/empty runs under sanitizers with every seed"])

    def test_expression(self):
        self.assertEqual(reach.expression(["unit/a:1 + 2 (in parts), a's"]), r"^(unit/a:1 \+ 2 \(in parts\), a's)$")


if __name__ == "__main__":
    unittest.main()
