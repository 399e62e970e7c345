# SPDX-License-Identifier: Apache-2.0
"""The scripts under tools: each rule must be able to fail, and say where."""
import io
import subprocess
import sys
import tempfile
import unittest
from contextlib import redirect_stdout
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))

import check_files  # noqa: E402
import check_headers  # noqa: E402
import check_includes  # noqa: E402
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


class Headers(unittest.TestCase):
    def test_what_the_build_does_not_prove_is_compiled(self):
        texts = {
            "include/coeus/a/first.hpp": "",
            "include/coeus/a/second.hpp": "",
            "include/coeus/a/after_a_macro.hpp": "",
            "include/coeus/a/in_a_test.hpp": "",
            "src/a/first.cpp": SPDX + '// text\n#include "coeus/a/first.hpp"\n\n#include "coeus/a/second.hpp"\n',
            "src/a/macro.cpp": SPDX + '#define A\n#include "coeus/a/after_a_macro.hpp"\n',
            "tests/a.cpp": SPDX + '#include "coeus/a/in_a_test.hpp"\n',
        }
        left = check_headers.left_to_check([Path(name) for name in texts], lambda path: texts[str(path)])
        self.assertEqual([path.stem for path in left], ["second", "after_a_macro", "in_a_test"])

    def test_a_header_that_lacks_an_include_is_found(self):
        with tempfile.NamedTemporaryFile("w", suffix=".hpp") as header:
            header.write("#pragma once\nstd::vector<int> a;\n")
            header.flush()
            self.assertIn("does not compile alone: ", check_headers.compile_alone(Path(header.name))[0])


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
