# SPDX-License-Identifier: Apache-2.0
"""bench/exposed.py"""
import importlib.util
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

ROOFLINE = """Roofline by the rates of m (m), measured:
  milliseconds                       per local batch    share   once a step
  products                                      1034.2   66.1 %
  waits for other stages                          10.0    0.6 %
  step of 1,000 local batches: 1500000.0 ms, 10,469 tokens/s per rank
  communication, overlapped          per local batch  exposed   once a step  exposed
  gathers of weights                            79.5      0.5           1.2      4.0
  rows of experts                               87.2      6.5           0.0      0.0
  other collectives                              1.0      1.0         500.0    500.0
  sum                                          167.7      8.0         501.2    504.0
  one after the other: 6.7 ms exposed per local batch, 4.0 once; a local batch takes 1573.7 ms, a step 1650000.0 ms
"""


class Exposed(unittest.TestCase):
    def module(self, path):
        spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def setUp(self):
        self.exposed = self.module("bench/exposed.py")

    def test_times_of_a_step(self):
        row = self.exposed.exposed_of(ROOFLINE)
        self.assertEqual(row, {"step": 1500000.0, "idle": 10000.0, "serial": 1650000.0, "overlapped": None, "exposed": {
            "gathers of weights": 504.0, "rows of experts": 6500.0, "other collectives": 1500.0}})
        self.assertEqual(self.exposed.line_of("m", row),
                         "| m | 1,500,000 | 504 |  |  |  |  | 6,500 | 0.6 % | 0.7 % | +10.0 % |")

    def test_a_run_in_serial_order(self):
        text = ROOFLINE.replace("communication, overlapped         ", "communication, one after the other").replace(
            "one after the other: ", "overlapped: ").replace("1650000.0", "1200000.0")
        row = self.exposed.exposed_of(text)
        self.assertEqual((row["serial"], row["overlapped"]), (1500000.0, 1200000.0))
        self.assertTrue(self.exposed.line_of("m", row).endswith("| +25.0 % |"))

    def test_one_rank(self):
        row = self.exposed.exposed_of("  step of 1 local batch: 12.0 ms, 5 tokens/s per rank\n")
        self.assertEqual(self.exposed.line_of("m", row), "| m | 12 |  |  |  |  |  |  | 0.0 % |  |  |")

    def test_a_run_without_a_roofline_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "coeus"
            program.write_text("#!/bin/sh\necho 'No roofline: offloaded'\n")
            program.chmod(0o755)
            done = subprocess.run([ROOT / "bench/exposed.py", "my.toml", "--program", program], capture_output=True,
                                  text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("my: No roofline: offloaded", done.stderr)
        self.assertIn("my.toml --dry_run --gpu=h100-sxm --ranks=8", done.stderr)

    def test_tables_that_differ(self):
        table = self.module("tests/tools/exposed_table.py")
        row = "| TP 8 | 41,240 | 4 |  | 40.5 % | +0.0 % |"
        for other in (row, "| TP 8 | 41,241 | 4 |  | 40.4 % | -0.1 % |", "| TP 8 | 41,240 | 3 |  | 40.5 % | +0.1 % |"):
            self.assertEqual(table.differences([row], [other]), [], other)
        for other in ("| TP 8 | 41,242 | 4 |  | 40.5 % | +0.0 % |", "| TP 8 | 41,240 | 4 |  | 40.7 % | +0.0 % |",
                      "| TP 8 | 41,240 | 4 | 0 | 40.5 % | +0.0 % |", "| TP 9 and | 41,240 | 4 |  | 40.5 % | +0.0 % |",
                      "| TP 8 | 41,240 | 4 |  | 40.5 % |  |", "| TP 8 | 41,240 | 4 |  | 40.5 % |"):
            self.assertEqual(len(table.differences([row], [other])), 1, other)
        self.assertEqual(table.differences([row], [row, row]), ["1 lines instead of 2"])


if __name__ == "__main__":
    unittest.main()
