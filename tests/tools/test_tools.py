# SPDX-License-Identifier: Apache-2.0
"""The scripts under tools: each rule must be able to fail, and say where."""
import io
import json
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from contextlib import redirect_stdout
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))

import check_files  # noqa: E402
import check_includes  # noqa: E402
import loss_curve  # noqa: E402
import sources  # noqa: E402

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


class Files(unittest.TestCase):
    def check(self, name, text):
        return check_files.check(Path(name), text)

    def test_good_files(self):
        self.assertEqual(self.check("src/base/a.cpp", SPDX + "int a;\n"), [])
        self.assertEqual(self.check("include/coeus/base/a.hpp", SPDX + "#pragma once\n"), [])
        self.assertEqual(self.check("tools/a.sh", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n"), [])
        self.assertEqual(self.check("tests/a.json", "{}\n"), [])

    def test_findings(self):
        cases = {
            "SPDX": ("src/a.cpp", "int a;\n"),
            "#pragma once": ("src/a.hpp", SPDX + "int a;\n"),
            "more than 600 lines": ("src/a.cpp", SPDX + "int a;\n" * 600),
            "a path of one machine": ("src/a.cpp", SPDX + 'auto x = "' + "/home" + '/me/x";\n'),
            "white space": ("src/a.cpp", SPDX + "int a; \n"),
            "no newline": ("src/a.cpp", SPDX + "int a;"),
        }
        for what, (name, text) in cases.items():
            found = self.check(name, text)
            self.assertEqual(len(found), 1, (what, found))
            self.assertIn(what, found[0])
            self.assertTrue(found[0].startswith(name + ":"))


class Includes(unittest.TestCase):
    ALLOWED = {"base": {"base"}, "comm": {"comm", "base"}, "apps": {"apps", "comm", "base"}}

    def check(self, name, *includes):
        text = "".join(f"#include {i}\n" for i in includes)
        return check_includes.check(Path(name), text, self.ALLOWED, {Path("src/comm/check_mpi.hpp")})

    def test_good_includes(self):
        self.assertEqual(self.check("src/comm/mpi.cpp", '"coeus/base/log.hpp"', '"check_mpi.hpp"', "<mpi.h>"), [])
        self.assertEqual(self.check("src/comm/deep/x.cpp", '"check_mpi.hpp"', "<vector>"), [])
        self.assertEqual(self.check("src/comm/deep/x.cpp", '"../check_mpi.hpp"'), [])
        self.assertEqual(self.check("tests/unit/base/x.cpp", '"coeus/comm/mpi.hpp"', "<hdf5.h>"), [])

    def test_findings(self):
        cases = {
            "base must not include comm": ("src/base/log.cpp", '"coeus/comm/mpi.hpp"'),
            "comm must not include apps": ("include/coeus/comm/mpi.hpp", '"coeus/apps/x.hpp"'),
            "belongs to comm alone": ("src/base/log.cpp", "<mpi.h>"),
            "in a public header": ("include/coeus/comm/mpi.hpp", "<mpi.h>"),
            "belongs to file alone": ("src/comm/mpi.cpp", "<nlohmann/json.hpp>"),
            "not a private header of base": ("src/base/log.cpp", '"check_mpi.hpp"'),
            "not a private header of apps": ("src/apps/main.cpp", '"../comm/check_mpi.hpp"'),
            'by "coeus/<folder>/..." only': ("include/coeus/comm/mpi.hpp", '"check_mpi.hpp"'),
        }
        for what, (name, include) in cases.items():
            found = self.check(name, include)
            self.assertEqual(len(found), 1, (what, found))
            self.assertIn(what, found[0])
            self.assertTrue(found[0].startswith(name + ":1:"))

    def test_layers_come_from_the_build(self):
        layers = sources.layers()
        self.assertEqual(layers["base"], {"base"})
        self.assertNotIn("comm", layers["kernels"])
        self.assertIn("base", layers["train"])
        self.assertNotIn("apps", layers["train"])

    def test_a_cycle_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "cmake").mkdir()
            (Path(folder) / "cmake/libraries.cmake").write_text("coeus_library(a USES b)\ncoeus_library(b USES a)\n")
            with self.assertRaisesRegex(SystemExit, "a uses b"):
                sources.layers(Path(folder))

    def test_report(self):
        said = io.StringIO()
        with redirect_stdout(said):
            self.assertEqual(sources.report([], "all"), 0)
            self.assertEqual(sources.report(["a.cpp:1: bad"], "all"), 1)
        self.assertEqual(said.getvalue(), "all\na.cpp:1: bad\nall: 1 findings\n")


class LossCurve(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.metrics = Path(self.folder.name) / "metrics.jsonl"

    def write(self, *records):
        self.metrics.write_text("".join(json.dumps(r) + "\n" for r in records))

    def test_reads_both_series_and_the_later_of_repeated_steps(self):
        self.write({"step": 1, "loss": 8.0}, {"step": 2, "loss": 7.0}, {"step": 2, "validation_loss": 6.5},
                   {"step": 2, "loss": 7.5}, {"step": 3, "loss": float("nan")})
        series = loss_curve.read(self.metrics)
        self.assertEqual(series, {"loss": [(1, 8.0), (2, 7.5)], "validation_loss": [(2, 6.5)]})

    def test_draws_valid_svg_with_every_point_inside(self):
        self.write(*({"step": s, "loss": 8 / s} for s in range(1, 1001)), {"step": 1000, "validation_loss": 0.1})
        picture = Path(self.folder.name) / "loss.svg"
        subprocess.run([sys.executable, ROOT / "tools/loss_curve.py", self.metrics, picture, "--title", "a < b"],
                       check=True)
        root = xml.etree.ElementTree.parse(picture).getroot()
        lines = [e for e in root.iter() if e.tag.endswith("polyline")]
        self.assertEqual(len(lines), 2)
        points = [tuple(map(float, p.split(","))) for line in lines for p in line.get("points").split()]
        self.assertLess(len(points), 300)
        self.assertTrue(all(loss_curve.LEFT <= x <= loss_curve.WIDTH - loss_curve.RIGHT for x, _ in points))
        self.assertTrue(all(loss_curve.TOP <= y <= loss_curve.HEIGHT - loss_curve.BOTTOM for _, y in points))
        self.assertIn("a < b", [e.text for e in root.iter()])

    def test_one_point_and_equal_losses(self):
        self.write({"step": 1, "loss": 8.0})
        self.assertIn("<polyline", loss_curve.draw(loss_curve.read(self.metrics), "t"))

    def test_bad_files_are_named(self):
        self.metrics.write_text('{"step": 1}\n{"ste')
        with self.assertRaisesRegex(SystemExit, "metrics.jsonl:2: not a JSON object"):
            loss_curve.read(self.metrics)
        self.write({"step": 1})
        with self.assertRaisesRegex(SystemExit, "no line has a finite loss"):
            loss_curve.draw(loss_curve.read(self.metrics), "t")

    def test_ticks_are_round_and_inside(self):
        self.assertEqual(loss_curve.ticks(0, 100, 5), [0, 20, 40, 60, 80, 100])
        self.assertEqual([round(t, 9) for t in loss_curve.ticks(3.4, 4.6, 6)], [3.4, 3.6, 3.8, 4.0, 4.2, 4.4, 4.6])
        self.assertEqual(loss_curve.ticks(5, 5), [5])


class Packages(unittest.TestCase):
    def test_an_unknown_part_is_refused(self):
        done = subprocess.run([ROOT / "tools/deps.sh", "nothing"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("parts are build run test lint bench", done.stderr)

    def test_without_root_one_line_is_printed(self):
        """A stand-in of apt's tools, where nothing is installed and sudo wants a password."""
        with tempfile.TemporaryDirectory() as folder:
            for name, body in {"apt-get": "exit 9", "dpkg-query": "exit 1", "id": "echo 1000", "sudo": "exit 1"}.items():
                script = Path(folder) / name
                script.write_text(f"#!/bin/sh\n{body}\n")
                script.chmod(0o755)
            done = subprocess.run([ROOT / "tools/deps.sh", "run"], capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL, env={"PATH": f"{folder}:/usr/bin:/bin"})
        self.assertEqual(done.returncode, 2)
        self.assertIn("apt-get update && apt-get install -y --no-install-recommends dict-gcide\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
