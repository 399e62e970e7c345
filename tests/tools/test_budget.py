# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/budget.py."""
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import budget  # noqa: E402

TEXT = """# a comment
total 50
rest 10

[mpi] 30
20    1    1/3  mpi/a: 2 ranks
40    1/4  1/4  mpi/a: 8 ranks
[program] 10
2.5   1    1    program:hangs: a rank [of two] ends
7.5   1    1/2  program:hangs:*
9     1    0    unit/v3:*
"""


def read(text):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "budget.txt"
        file.write_text(text)
        return budget.read(file)


class Budget(unittest.TestCase):
    def test_lines(self):
        found = read(TEXT)
        self.assertEqual([(line.seconds, line.reached, line.otherwise) for line in found.lines],
                         [(20, 1, 3), (40, 4, 4), (2.5, 1, 1), (7.5, 1, 2), (9, 1, 0)])
        lines = tuple(found.lines)
        for name, number in (("mpi/a: 2 ranks", 0), ("mpi/a: 8 ranks", 1), ("program:hangs: a rank [of two] ends", 2),
                             ("program:hangs: b", 3), ("program:hangs", None), ("unit/x:mpi/a: 2 ranks", None)):
            self.assertIs(budget.line_of(name, lines), None if number is None else lines[number], name)

    def test_a_line_of_another_form(self):
        for line in ("2.5 program:a", "2.5 1 1/3", "2.5 2 1 a", "1 1 1/ a", "-1 1 1 a", "total much", "[a]"):
            with self.assertRaisesRegex(SystemExit, r"tests/budget.txt:10: a line is \"SECONDS REACHED OTHERWISE TEST\""):
                read(TEXT.replace("7.5   1    1/2  program:hangs:*", line))
        with self.assertRaisesRegex(SystemExit, "budget.txt:2:"):
            read("total 5\n1 1 1 a: line before any folder\n")

    def test_sums(self):
        self.assertEqual(budget.sums(read(TEXT)), [])
        found = budget.sums(read(TEXT.replace("7.5 ", "8 ")))
        self.assertEqual(len(found), 1)
        self.assertIn("tests/budget.txt:8: the lines of [program] are 10.5 s, 0.5 more than its 10", found[0])
        self.assertIn("[program] 11", found[0])
        found = budget.sums(read(TEXT.replace("rest 10", "rest 11")))
        self.assertEqual(len(found), 1)
        self.assertIn("51 s, 1 more than the total of 50", found[0])
        self.assertIn("take as much", found[0])

    def test_lines_without_a_test(self):
        names = ["mpi/a: 2 ranks", "mpi/a: 8 ranks", "program:hangs: a rank [of two] ends", "program:hangs: b", "unit/v3:a"]
        self.assertEqual(budget.without_test(read(TEXT), names), [])
        self.assertEqual(budget.without_test(read(TEXT), names[1:]),
                         ["tests/budget.txt:6: there is no test \"mpi/a: 2 ranks\"; take the line out, or write the test's new name"])

    def test_occupied_seconds(self):
        junit = """<testsuite><testcase name="a" time="3" status="run"/><testcase name="b" time="4" status="fail"/>
            <testcase name="c" time="5" status="notrun"/></testsuite>"""
        self.assertEqual(budget.occupied(junit, {"a": 6, "b": 48}), {"a": 1.5, "b": 4})

    def test_a_slow_machine_is_not_reported_but_a_test_that_grew_is(self):
        seconds = {"mpi/a: 2 ranks": 20, "mpi/a: 8 ranks": 40, "program:hangs: a rank [of two] ends": 2.5, "program:hangs: b": 4,
                   "program:hangs: c": 3.5, "unit/a:small": 0.1}
        slow = {name: 3 * value for name, value in seconds.items()}
        drawn = {name: value for name, value in slow.items() if name not in ("mpi/a: 8 ranks", "program:hangs: b")}
        for measured in (seconds, slow, drawn):
            self.assertEqual(len(budget.compared(read(TEXT), measured, list(seconds))), 1)
        found = budget.compared(read(TEXT), {**slow, "program:hangs: b": 60}, list(seconds))
        self.assertEqual(len(found), 2)
        self.assertIn("tests/budget.txt:10: program:hangs:*: ", found[1])

    def test_a_new_test_of_a_second_is_named_with_its_line(self):
        measured = {"mpi/a: 2 ranks": 40, "unit/a:dear": 3, "unit/a:cheap": 1.9}
        found = budget.compared(read(TEXT), measured, list(measured))
        self.assertEqual(found[1:], ["budget: tests/budget.txt lacks a test of 1.5 s; its line, below [unit/a]: "
                                     "1.5  1  1/3  unit/a:dear"])

    def test_dear_files(self):
        log = "# ninja log v5\n" + "".join(f"0\t{5 if i else 500}\t1\tfile{i}.o\tabc\n" for i in range(100))
        self.assertEqual([name for name, _ in budget.dear_files(log)], ["file0.o"])

    def test_the_file(self):
        self.assertEqual(budget.sums(budget.read(ROOT / budget.FILE)), [])
