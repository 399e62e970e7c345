# SPDX-License-Identifier: Apache-2.0
"""Tests the scripts in tools: each rule must be able to fail, and must name the place."""
import io
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT / "tests/systems"))
sys.path.insert(0, str(ROOT / "tests/tools"))

import check_files  # noqa: E402
import check_headers  # noqa: E402
import check_includes  # noqa: E402
import check_uses  # noqa: E402
import exchange  # noqa: E402
import pictures  # noqa: E402
import same_numbers  # noqa: E402
import sources  # noqa: E402
import thin_library  # noqa: E402
import tidy  # noqa: E402
import where_tested  # noqa: E402

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


class ThinLibrary(unittest.TestCase):
    """tools/thin_library.py, with fat binaries whose entries have the layout of NVIDIA's."""

    def fat(self, *entries):
        """A fat binary of (kind, architecture, payload)."""
        body = b"".join(struct.pack("<HHIQ12xI", kind, 0x101, 64, len(payload), architecture) + bytes(32) + payload
                        for kind, architecture, payload in entries)
        return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body

    def test_kernels_of_other_architectures_become_zeros(self):
        ptx, elf = 1, 2
        several = self.fat((elf, 80, b"A" * 40), (elf, 90, b"B" * 24), (ptx, 120, b"C" * 16))
        others = self.fat((elf, 80, b"D" * 8))
        # the number without a fat binary after it: data that look like one
        image = bytearray(b"before" + several + b"between" + others + struct.pack("<I", 0xBA55ED50) + b"\xff" * 40)
        whole = bytes(image)
        self.assertEqual(thin_library.thin(image, 90), (2, 24, 40 + 16))
        self.assertEqual(bytes(image), whole.replace(b"A" * 40, bytes(40)).replace(b"C" * 16, bytes(16)))
        self.assertEqual(thin_library.thin(image[:len(b"before") + 20], 90), (0, 0, 0))  # a cut file

    @unittest.skipIf(shutil.which("zstd") is None, "there is no zstd")
    def test_a_package(self):
        with tempfile.TemporaryDirectory() as folder:
            package, packed = Path(folder) / "nccl.whl", Path(folder) / "nccl.zst"
            image = self.fat((2, 80, b"A" * 40), (2, 90, b"B" * 24))
            with zipfile.ZipFile(package, "w") as archive:
                archive.writestr("nvidia/nccl/lib/libnccl.so.2", image)
                archive.writestr("nvidia/nccl/include/nccl.h", "")
            with redirect_stdout(io.StringIO()) as said:
                thin_library.main([str(package), "90", str(packed)])
            self.assertIn("with 1 fat binaries", said.getvalue())
            unpacked = subprocess.run(["zstd", "-d", "-c", packed], capture_output=True, check=True).stdout
            self.assertEqual(unpacked, image.replace(b"A" * 40, bytes(40)))
            with self.assertRaisesRegex(SystemExit, "has no kernels for sm_75 in its 1 fat binaries: nothing was written"):
                thin_library.main([str(package), "75", str(Path(folder) / "other.zst")])
            self.assertFalse((Path(folder) / "other.zst").exists())


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
            "an anonymous namespace": ("src/a.hpp", SPDX + "#pragma once\nnamespace {\n}\n"),
            "more than 600 lines": ("src/a.cpp", SPDX + "int a;\n" * 600),
            "a path that exists only on one machine": ("src/a.cpp", SPDX + 'auto x = "' + "/home" + '/me/x";\n'),
            "white space": ("src/a.cpp", SPDX + "int a; \n"),
            "no newline": ("src/a.cpp", SPDX + "int a;"),
        }
        for what, (name, text) in cases.items():
            found = self.check(name, text)
            self.assertEqual(len(found), 1, (what, found))
            self.assertIn(what, found[0])
            self.assertTrue(found[0].startswith(name + ":"))


class SameNumbers(unittest.TestCase):
    """The differences of two builds that same_numbers.py reports."""
    FOUND = {"loss of step 1": "2.5", "grad_norm of step 1": "1.25", "checksum of model/w": "17", "plan: weights": "1.00 MiB"}

    def test_the_same(self):
        self.assertEqual(same_numbers.compare(self.FOUND, dict(self.FOUND)), ([], []))

    def test_each_kind_of_number_may_differ(self):
        for name, value in self.FOUND.items():
            other = self.FOUND | {name: "9"}
            self.assertEqual(same_numbers.compare(self.FOUND, other), ([f"{name}: {value} : 9"], []))
            less = {key: number for key, number in self.FOUND.items() if key != name}
            for pair in ((self.FOUND, less), (less, self.FOUND)):
                self.assertEqual(same_numbers.compare(*pair), ([], [name]))


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
            "may only be included in comm": ("src/base/log.cpp", "<mpi.h>"),
            "in a public header": ("include/coeus/comm/mpi.hpp", "<mpi.h>"),
            "may only be included in file": ("src/comm/mpi.cpp", "<nlohmann/json.hpp>"),
            "not a private header of base": ("src/base/log.cpp", '"check_mpi.hpp"'),
            "not a private header of apps": ("src/apps/main.cpp", '"../comm/check_mpi.hpp"'),
            'must include by "coeus/<folder>/..."': ("include/coeus/comm/mpi.hpp", '"check_mpi.hpp"'),
        }
        for what, (name, include) in cases.items():
            found = self.check(name, include)
            self.assertEqual(len(found), 1, (what, found))
            self.assertIn(what, found[0])
            self.assertTrue(found[0].startswith(name + ":1:"))

    def test_an_entry_that_nothing_needs(self):
        uses = {"base": [], "comm": ["base"], "apps": ["comm", "base"]}
        code = [(Path("include/coeus/comm/mpi.hpp"), '#include "coeus/base/log.hpp"\n'),
                (Path("src/apps/main.cpp"), '#include <mpi.h>\n#include "coeus/comm/mpi.hpp"\n'),
                (Path("tests/unit/apps/main.cpp"), '#include "coeus/base/log.hpp"\n')]
        self.assertEqual(check_includes.unused(uses, code),
                         ["cmake/libraries.cmake: apps uses base, but no file of apps includes it"])
        self.assertEqual(check_includes.unused({"base": [], "comm": ["base"], "apps": ["comm"]}, code), [])

    def test_a_light_folder_that_reaches_more(self):
        layers = {"base": {"base"}, "kernels": {"kernels", "base"}, "config": {"config", "base"}}
        light = {"base": set(), "config": {"base"}}
        self.assertEqual(check_includes.heavy(layers, light), [])
        layers["config"] = {"config", "kernels", "base"}
        self.assertEqual(check_includes.heavy(layers, light),
                         ["cmake/libraries.cmake: config reaches kernels; it may use only base"])
        self.assertEqual(check_includes.heavy(sources.layers(), check_includes.LIGHT), [])
        self.assertNotIn("kernels", set().union(*check_includes.LIGHT.values()))

    def test_layers_are_read_from_the_build(self):
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


class Uses(unittest.TestCase):
    """Each file includes what it uses."""
    TEXTS = {
        "include/coeus/a/shape.hpp": "#include <vector>\nstruct Shape {\n    struct Inner {};\n    int number_of() const;\n};\n"
                                     "int count_of(const Shape& shape);\n",
        "include/coeus/a/flow.hpp": '#include "coeus/a/shape.hpp"\nclass Flow;\nclass Flow {\n    Shape shape;\n};\n',
    }

    def check(self, text, name="src/a/x.cpp"):
        texts = {Path(path): content for path, content in {**self.TEXTS, name: text}.items()}
        return check_uses.Tree(texts).check(Path(name))

    def test_included_names_may_be_used(self):
        for text in (
            '#include "coeus/a/flow.hpp"\nstd::vector<Shape> all;\nint n = count_of(all[0]);\n',  # through flow.hpp
            "// Shape, std::map\nconst char* text = \"Shape std::map count_of(\";\n",
            "struct Shape {};\nShape own;\n",
            "int count_of(int x);\nint two = count_of(2);\n",
            "int f(const Box& box) { return box.count_of(1) + box->count_of(2); }\n",
            "struct Inner {};\nint n = number_of(Inner());\n",  # names of members of other types
            "#include <catch2/catch.hpp>\nstd::string text;\n",
        ):
            self.assertEqual(self.check(text), [], text)

    def test_names_that_are_not_included_are_found(self):
        cases = {
            "src/a/x.cpp:2: uses std::map, but does not include <map>": "#include <vector>\nstd::map<int, int> m;\n",
            "src/a/x.cpp:1: uses std::vector, but does not include <vector>": "std::vector<int> v;\n",
            'src/a/x.cpp:1: uses Shape, but does not include "include/coeus/a/shape.hpp"': "coeus::Shape* s;\n",
            'src/a/x.cpp:1: uses count_of, but does not include "include/coeus/a/shape.hpp"': "int n = count_of(x);\n",
            'src/a/x.cpp:2: uses count_of, but does not include "include/coeus/a/shape.hpp"':
                "int f(bool a) {\n    return a && 2 * count_of(x) > 1;\n}\n",
            'src/a/x.cpp:1: uses Flow, but does not include "include/coeus/a/flow.hpp"': "Flow flow;\n",
        }
        for finding, text in cases.items():
            self.assertEqual(self.check(text), [finding])

    def test_every_file_includes_what_it_uses(self):
        tree = check_uses.Tree({path: (ROOT / path).read_text() for path in sources.code()})
        self.assertGreater(len(tree.declared), 500)  # declarations are found at all


class Headers(unittest.TestCase):
    def test_a_header_that_lacks_an_include_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            header = Path(folder) / "lacks.hpp"
            header.write_text("#pragma once\nstd::vector<Mesh> a;\n")
            before = check_headers.precompiled(["#include <vector>\n"], folder)
            self.assertIn("does not compile alone: ", check_headers.compile_chain([header], before)[0])
            header.write_text("#pragma once\nstd::vector<int> a;\n")
            self.assertEqual(check_headers.compile_chain([header], before), [])

    def test_headers_of_a_chain_include_the_ones_before(self):
        a, b, c, d = (Path("include") / name for name in "abcd")
        texts = {a: "", b: '#include "a"\n', c: '#include "b"\n', d: '#include "a"\n'}
        included = check_headers.inclusions(texts)
        self.assertEqual(check_headers.chains(included, texts), [[a, b, c], [d]])
        # what an unwanted header includes still counts
        self.assertEqual(check_headers.chains(included, {a, c}), [[a, c]])

    def test_only_the_headers_of_a_list_are_compiled(self):
        texts = {Path("include") / name: "" for name in "abc"}
        with tempfile.NamedTemporaryFile("w") as file, mock.patch.dict(os.environ, COEUS_HEADERS=file.name):
            self.assertEqual(check_headers.chosen(texts), set())
            file.write("include/a\ninclude/c\n")
            file.flush()
            self.assertEqual(check_headers.chosen(texts), {Path("include/a"), Path("include/c")})
            file.write("include/d\n")
            file.flush()
            with self.assertRaisesRegex(SystemExit, "names what is not a public header: include/d"):
                check_headers.chosen(texts)
            os.environ["COEUS_HEADERS"] = ""
            self.assertEqual(check_headers.chosen(texts), set(texts))


class Tidy(unittest.TestCase):
    def test_files_of_a_folder_with_the_same_options_are_together(self):
        def item(path, *options):
            return (ROOT / path, list(options))
        work = [item("src/base/text.cpp"), item("src/base/log.cpp"), item("src/base/error.cpp"), item("src/pretrained/dcp.cpp"),
                item("src/base/types.cpp", "-DA")]
        parts = [{path.name for path, _ in part} for part in tidy.groups(work, most=2)]
        self.assertCountEqual(map(len, parts), [2, 1, 1, 1])
        self.assertIn({"dcp.cpp"}, parts)
        self.assertIn({"types.cpp"}, parts)

    def test_lines_keep_their_places(self):
        with tempfile.TemporaryDirectory() as folder:
            first, second, header = (Path(folder) / name for name in ("a.cpp", "b.cpp", "own.hpp"))
            first.write_text("int a;\nint b;\n")
            second.write_text('#include "own.hpp"\n#include "coeus/x.hpp"\nint c;\n')
            header.write_text("")
            text, places = tidy.joined([first, second])
            self.assertEqual(text, f'int a;\nint b;\n#include "{header.resolve()}"\n#include "coeus/x.hpp"\nint c;\n')
            self.assertEqual(places, [(first, 1), (first, 2), (second, 1), (second, 2), (second, 3)])

    def looked_at(self, *texts):
        """The findings of clang-tidy for these texts, checked together, as (file, line)."""
        if not shutil.which(tidy.TIDY):
            self.skipTest(f"there is no {tidy.TIDY}")
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / f"{name}.cpp" for name in "abc"[:len(texts)]]
            for path, text in zip(paths, texts):
                path.write_text(text)
            return {(place.name, line) for place, line, _ in tidy.tidy(paths, ["-std=c++20"])}

    def test_findings_are_those_of_their_files(self):
        clean, bad = "int f(int x);\n", "#include <string>\n\nbool g(const std::string& s) { return s.size() == 0; }\n"
        self.assertEqual(self.looked_at(clean, bad, "int h(int x);\n"), {("b.cpp", 3)})
        self.assertEqual(self.looked_at(clean, "int h(int x);\n"), set())

    def test_files_that_do_not_compile_together_are_checked_separately(self):
        bad = "#include <string>\n\nbool g(const std::string& s) { return s.size() == 0; }\n"
        clash = "namespace {\nint width = 1;\n}\nint {}() {{ return width; }}\n"
        first, second = (clash.replace("{}()", f"{name}()").replace("{{", "{").replace("}}", "}") for name in "hk")
        self.assertEqual(self.looked_at(first, bad, second), {("b.cpp", 3)})

    def test_a_batch_stands_for_its_files(self):
        with tempfile.TemporaryDirectory() as folder:
            unity = Path(folder) / "Unity/unity_0_cxx.cxx"
            unity.parent.mkdir()
            unity.write_text(f'#include "{ROOT}/src/base/text.cpp"\n#include "{ROOT}/src/base/log.cpp"\n')
            found = tidy.sources_of({"file": str(unity)}, Path(folder))
            self.assertEqual(found, [ROOT / "src/base/text.cpp", ROOT / "src/base/log.cpp"])
            self.assertEqual(tidy.sources_of({"file": str(ROOT / "src/pretrained/dcp.cpp")}, Path(folder)),
                             [ROOT / "src/pretrained/dcp.cpp"])
            self.assertEqual(tidy.sources_of({"file": "/elsewhere/x.cpp"}, Path(folder)), [])


class Pictures(unittest.TestCase):
    def drawn(self, inside):
        return pictures.flaws("a.svg", f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 90 50">{inside}</svg>')

    # one shape in each part of the width
    everywhere = "".join(f'<circle cx="{9 + 18 * i}" cy="9" r="3"/>' for i in range(5))

    def test_what_is_inside(self):
        self.assertEqual(self.drawn('<rect x="0" y="1" width="90" height="49"/><line x1="3" x2="90" y1="0" y2="50"/>'
                                    '<path d="M1,2 C3,4 5,6 90,50"/><rect width="100%" height="100%"/>'
                                    f'<text x="80" y="9" text-anchor="end">right</text>{self.everywhere}'), [])

    def test_what_is_cut_off(self):
        for inside in ('<rect x="-1" y="0" width="5" height="5"/>', '<rect x="80" y="0" width="11" height="5"/>',
                       '<g><circle cx="5" cy="48" r="3"/></g>', '<path d="M1,2 L91,3"/>', '<text x="5" y="60">a</text>',
                       '<polyline points="0,0 5,-1"/>', '<line x1="0" x2="95" y1="0" y2="0"/>'):
            self.assertEqual(len(self.drawn(inside + self.everywhere)), 1, inside)

    def test_texts_and_moved_shapes_are_cut_off(self):
        for inside in ('<text x="80" y="9">right</text>', '<text x="5" y="9" text-anchor="end">left</text>',
                       '<g font-size="40"><text x="20" y="9">wide</text></g>',
                       '<g transform="translate(80, 5)"><rect x="5" y="5" width="9" height="9"/></g>',
                       '<rect transform="scale(3)" x="20" y="5" width="15" height="5"/>'):
            self.assertEqual(len(self.drawn(inside + self.everywhere)), 1, inside)

    def test_empty_parts(self):
        background = '<rect width="90" height="50"/><line x1="0" x2="90" y1="40" y2="40"/>'
        left = '<rect x="0" y="0" width="30" height="5"/><rect x="30" y="0" width="30" height="5"/>'
        self.assertEqual(self.drawn(background + left), ["a.svg: is empty in part 5 of 5 from left to right"])
        curve = '<polyline points="0,1 20,2 40,3 60,4 80,5"/>'
        self.assertEqual(self.drawn(background + curve), [])
        self.assertEqual(len(self.drawn("")), 1)

    def test_folders_are_inside_however_many_there_are(self):
        self.assertEqual(pictures.flaws("folders", pictures.draw_folders(sources.layers())), [])


class WhereTested(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tests = where_tested.Tests()

    def test_each_source_has_a_test(self):
        tests = self.tests
        untested = [str(source) for source in where_tested.sources() if not tests.of(source)[1]]
        self.assertEqual(untested, [])

    def test_the_table_names_existing_files(self):
        tests = self.tests
        found = [tests.of(source) for source in where_tested.sources()]
        used = {pattern for pattern, files in tests.table if ("by the table", files) in found}
        for pattern, files in tests.table:
            self.assertIn(pattern, used)
            for file in files:
                self.assertTrue((ROOT / file).exists(), file)

    def test_the_ways_to_find_a_test(self):
        tests = self.tests
        self.assertEqual(tests.of(Path("src/base/log.cpp")), ("its own", [Path("tests/unit/base/log.cpp")]))
        self.assertEqual(tests.of(Path("src/comm/together.cpp")), ("by name", [Path("tests/mpi/comm/together.cpp")]))
        self.assertEqual(tests.of(Path("src/train/faults.cpp"))[0], "by the table")
        self.assertEqual(tests.of(Path("src/train/absent.cpp"))[1], [])


class Packages(unittest.TestCase):
    def test_an_unknown_part_is_refused(self):
        done = subprocess.run([ROOT / "tools/deps.sh", "nothing"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("parts are build run test lint bench", done.stderr)

    def deps(self, *parts, lacking=None, **programs):
        """Runs tools/deps.sh with stand-ins for apt's tools: nothing is installed, and sudo wants a password. `lacking`:
        packages that the lists of the release do not have; None: there are no lists."""
        # the output of apt-cache policy for all lists, and for given names
        policy = "" if lacking is None else f"""
            [ $# -gt 1 ] || echo ' 500 http://mirror bookworm/main amd64 Packages'
            shift
            for name in "$@"; do
                case " {' '.join(lacking)} " in *" $name "*) candidate='(none)' ;; *) candidate=1.0-1 ;; esac
                printf '%s:\\n  Installed: (none)\\n  Candidate: %s\\n' "$name" "$candidate"
            done"""
        bodies = {"apt-get": "exit 9", "apt-cache": policy, "dpkg-query": "exit 1", "id": "echo 1000", "sudo": "exit 1"}
        environment = {name: value for name, value in programs.items() if name.isupper()}
        bodies |= {name.replace("_", "-"): body for name, body in programs.items() if not name.isupper()}
        with tempfile.TemporaryDirectory() as folder:
            for name, body in bodies.items():
                script = Path(folder) / name
                script.write_text(f"#!/bin/sh\n{body}\n")
                script.chmod(0o755)
            return subprocess.run([ROOT / "tools/deps.sh", *parts], capture_output=True, text=True, timeout=600,
                                  stdin=subprocess.DEVNULL, env={"PATH": f"{folder}:/usr/bin:/bin"} | environment)

    def test_without_root_one_line_is_printed(self):
        done = self.deps("run")
        self.assertEqual(done.returncode, 2)
        self.assertIn("apt-get update && apt-get install -y --no-install-recommends dict-gcide\n", done.stderr)

    def test_only_root_installs_what_nothing_needs(self):
        self.assertNotIn("ccache", self.deps("build").stderr)
        done = self.deps("build", lacking=[], id="echo 0", apt_get="exit 0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, "^deps: installing.* ccache ")

    def test_the_first_package_that_the_release_has(self):
        done = self.deps("lint", lacking=["clang-format-14", "clang-tidy-14"])
        self.assertIn(" clang-format-19 clang-tidy-19 python3\n", done.stderr)
        # packages that belong together are chosen together
        done = self.deps("sanitize", lacking=["libclang-rt-14-dev"])
        self.assertIn("--no-install-recommends clang-19 lld-19 libclang-rt-19-dev libomp-19-dev\n", done.stderr)
        done = self.deps("sanitize", lacking=[], dpkg_query='echo "clang-19 install ok installed"')
        self.assertIn("--no-install-recommends clang-14 lld-14 libclang-rt-14-dev libomp-14-dev\n", done.stderr)
        all_of_them = 'printf "%s install ok installed\\n" clang-19 lld-19 libclang-rt-19-dev libomp-19-dev'
        done = self.deps("sanitize", dpkg_query=all_of_them)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_root_installs(self):
        done = self.deps("run", lacking=[], id="echo 0", apt_get='echo "$@" >&2; case "$*" in *update) ;; *) exit 1 ;; esac')
        self.assertEqual((done.returncode, done.stdout), (3, "deps: installing dict-gcide\n"))
        self.assertIn("install -y --no-install-recommends dict-gcide\ndeps: apt could not install the packages; its "
                      "messages are above\n", done.stderr)
        self.assertEqual(self.deps("run", lacking=[], id="echo 0", apt_get="exit 0").returncode, 0)
        self.assertIn("its messages are above", self.deps("run", lacking=[], id="echo 0").stderr)

    def test_a_package_that_the_release_does_not_have(self):
        done = self.deps("run", lacking=["dict-gcide"], id="echo 0", apt_get="exit 0")
        self.assertEqual(done.returncode, 3)
        self.assertTrue(done.stderr.endswith(" has no package dict-gcide\n"), done.stderr)
        done = self.deps("run", lacking=["dict-gcide"])
        self.assertEqual(done.returncode, 2)
        self.assertTrue(done.stderr.endswith(" has no package dict-gcide\n"), done.stderr)
        done = self.deps("build", lacking=["libdnnl-dev"])
        self.assertEqual(done.returncode, 2)
        self.assertIn("has no package libdnnl-dev\ndeps: packaging/README.md says how to build the libraries", done.stderr)
        self.assertNotIn("libdnnl-dev", done.stderr[done.stderr.index("apt-get install"):])
        done = self.deps("sanitize", lacking=["libclang-rt-14-dev", "clang-19"])
        self.assertIn("has no package clang-14 with lld-14 with libclang-rt-14-dev with libomp-14-dev, and no clang-19 with "
                      "lld-19 with libclang-rt-19-dev with libomp-19-dev\n", done.stderr)

    def test_without_apt_every_library_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("dirname", "awk", "sed", "paste", "tr"):
                (Path(folder) / name).symlink_to(shutil.which(name))
            done = subprocess.run(["/bin/sh", ROOT / "tools/deps.sh", "build"], capture_output=True, text=True,
                                  env={"PATH": folder})
        self.assertEqual(done.returncode, 0, done.stderr)
        # every library that CMake looks for, under the name in its messages
        text = (ROOT / "cmake/dependencies.cmake").read_text()
        names = re.findall(r'coeus_missing\("([^"$]+?)(?: \(of [^"]*)?"', text)
        names += re.findall(r'^coeus_find\(\S+ (?:"[^"]*"|\S+) (?:"[^"]*"|\S+) "([^"]+)"', text, re.MULTILINE)
        names += re.findall(r"^coeus_find_headers\(\S+ \S+ (\S+)", text, re.MULTILINE)
        self.assertGreater(len(names), 10)
        for name in names:
            self.assertRegex(done.stdout, r"[ ,]" + re.escape(name) + "[,;]")
        self.assertNotIn("$", done.stdout)

    def test_the_mpi_that_is_installed_or_chosen(self):
        self.assertIn("recommends g++ cmake ninja-build ", self.deps("build").stderr)
        self.assertIn(" libopenmpi-dev openmpi-bin libhdf5-openmpi-dev", self.deps("build").stderr)
        self.assertIn(" libmpich-dev mpich libhdf5-mpich-dev", self.deps("build", COEUS_MPI="mpich").stderr)
        done = self.deps("build", dpkg_query='echo "libmpich-dev install ok installed"')
        self.assertIn(" mpich libhdf5-mpich-dev", done.stderr)
        self.assertNotIn("openmpi", done.stderr)
        both = 'printf "%s install ok installed\\n" libmpich-dev libopenmpi-dev'
        self.assertIn(" openmpi-bin libhdf5-openmpi-dev", self.deps("build", dpkg_query=both).stderr)
        done = self.deps("build", COEUS_MPI="lam")
        self.assertEqual((done.returncode, done.stderr),
                         (2, "deps: COEUS_MPI = lam: there is no such MPI; the choices are openmpi (the default) "
                             "and mpich\n"))


class Systems(unittest.TestCase):
    """Messages of cmake/dependencies.cmake and of scripts in tools about programs that are too old or do not fit together."""

    # ends at the first target after HDF5
    STANDS_FOR = """
macro(find_package name)
    set(${name}_FOUND ON)
    set(MPI_CXX_FOUND ${MPI_IS_HERE})
    set(OpenMP_CXX_FOUND ON)
endmacro()
function(add_library name)
    message(FATAL_ERROR "all is well up to ${name}")
endfunction()
"""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.mpi("OMPI_MAJOR_VERSION 4", "OMPI_MINOR_VERSION 1", "OMPI_RELEASE_VERSION 4")
        self.script("mpirun", "echo 'mpirun (Open MPI) 4.1.4'")

    def mpi(self, *macros):
        (self.folder / "mpi.h").write_text("".join(f"#define {macro}\n" for macro in macros))

    def script(self, name, body):
        (self.folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (self.folder / name).chmod(0o755)

    def configure(self, **values):
        script = self.folder / "script.cmake"
        script.write_text(self.STANDS_FOR + f"include({ROOT}/cmake/dependencies.cmake)\n")
        values = {"CMAKE_CXX_COMPILER_ID": "GNU", "CMAKE_CXX_COMPILER_VERSION": "12.2", "CMAKE_CXX_COMPILER": "g++",
                  "MPI_IS_HERE": "ON", "MPI_CXX_VERSION": "3.1", "MPI_CXX_COMPILER": "/usr/bin/mpicxx", "MPI_CXX_INCLUDE_DIRS": self.folder,
                  "COEUS_MPIRUN": self.folder / "mpirun", "HDF5_IS_PARALLEL": "ON", "HDF5_VERSION": "1.10.8",
                  "HDF5_LIBRARIES": "/nowhere/libhdf5.so", "PROJECT_SOURCE_DIR": ROOT} | values
        done = subprocess.run(["cmake", *(f"-D{name}={value}" for name, value in values.items()), "-P", script],
                              capture_output=True, text=True)
        return " ".join((done.stdout + done.stderr).split())

    def test_a_system_that_fits(self):
        said = self.configure()
        self.assertIn("all is well up to coeus_libhdf5", said)
        for wrong in ("too old", "MPICH", "would start ranks", "has been tried"):
            self.assertNotIn(wrong, said)

    def test_programs_that_are_too_old(self):
        for expected, values in {
                "The compiler is GCC 10.2, which is too old: Coeus needs 11 or newer.": {"CMAKE_CXX_COMPILER_VERSION": "10.2"},
                "The compiler is Clang 13.0, which is too old: Coeus needs 14 or newer.":
                    {"CMAKE_CXX_COMPILER_ID": "Clang", "CMAKE_CXX_COMPILER_VERSION": "13.0"},
                "/usr/bin/mpicxx implements MPI 3.0, which is too old: Coeus needs 3.1 or newer.": {"MPI_CXX_VERSION": "3.0"},
                "This is HDF5 1.8.20, which is too old: Coeus needs 1.10 or newer.": {"HDF5_VERSION": "1.8.20"}}.items():
            said = self.configure(**values)
            self.assertIn(expected, said)
            self.assertIn("packaging/README.md says how", said)
        self.assertIn("/usr/bin/mpicxx implements MPI: its version was not found.", self.configure(MPI_CXX_VERSION=""))

    def test_missing_libraries(self):
        said = self.configure(HDF5_IS_PARALLEL="OFF")
        self.assertIn("Coeus needs parallel HDF5 (for Open MPI 4.1.4), which was not found.", said)
        self.assertIn("Debian: apt-get install libhdf5-openmpi-dev", said)
        self.mpi('MPICH_VERSION "4.0.2"')
        said = self.configure(HDF5_IS_PARALLEL="OFF")
        self.assertIn("(for MPICH 4.0.2)", said)
        self.assertIn("Debian: apt-get install libhdf5-mpich-dev", said)
        for choice, packages in (("", "libopenmpi-dev openmpi-bin"), ("mpich", "libmpich-dev mpich")):
            said = self.configure(MPI_IS_HERE="OFF", COEUS_MPI=choice)
            self.assertIn("Coeus needs MPI, which was not found.", said)
            self.assertIn(f"Debian: apt-get install {packages} ", said)

    def test_an_untested_compiler(self):
        said = self.configure(CMAKE_CXX_COMPILER_ID="NVHPC", CMAKE_CXX_COMPILER_VERSION="24.1")
        self.assertIn("NVHPC 24.1: Coeus has been tried only with GCC and Clang", said)

    def test_cmake(self):
        for version, code in (("3.22.1", 2), ("3.25.1", 0), ("3.31.6", 0), ("4.0.2", 0)):
            self.script("cmake", f"echo cmake version {version}")
            done = subprocess.run([ROOT / "tools/check_cmake.sh"], capture_output=True, text=True,
                                  env={"PATH": f"{self.folder}:/usr/bin:/bin"})
            self.assertEqual(done.returncode, code, version)
            self.assertEqual("CMake 3.22.1 is too old: Coeus needs 3.25 or newer." in done.stderr, code == 2)
        self.script("cmake", "exit 127")
        done = subprocess.run([ROOT / "tools/check_cmake.sh"], capture_output=True, text=True,
                              env={"PATH": f"{self.folder}:/usr/bin:/bin"})
        self.assertEqual(done.returncode, 2)
        self.assertIn("There is no CMake: Coeus needs 3.25 or newer.", done.stderr)

    def test_mpich(self):
        self.mpi('MPICH_VERSION "4.0.2"')
        said = self.configure(COEUS_MPI="mpich")
        self.assertIn("-- MPICH 4.0.2: settings OMPI_*, make bundle and srun --mpi=pmix belong to Open MPI", said)
        self.assertIn(f"{self.folder}/mpirun does not belong to MPICH 4.0.2", said)
        self.script("mpirun", "echo HYDRA build details:")
        self.assertNotIn("does not belong to", self.configure())
        self.assertIn("COEUS_MPI = openmpi, but /usr/bin/mpicxx belongs to MPICH 4.0.2.",
                      self.configure(COEUS_MPI="openmpi"))

    def test_a_choice_of_mpi(self):
        self.assertIn("COEUS_MPI = mpich, but /usr/bin/mpicxx belongs to Open MPI 4.1.4. Install that MPI",
                      self.configure(COEUS_MPI="mpich"))
        self.assertIn("COEUS_MPI = lam: there is no such MPI; the choices are openmpi and mpich",
                      self.configure(COEUS_MPI="lam"))
        self.assertIn("was made with COEUS_MPI=openmpi. Remove it and build again",
                      self.configure(COEUS_MPI="mpich", COEUS_MPI_BEFORE="openmpi"))
        self.assertIn("was made with the MPI that comes first in the PATH. Remove it and build again",
                      self.configure(COEUS_MPI="mpich", COEUS_MPI_BEFORE=""))
        self.assertIn("all is well", self.configure(COEUS_MPI="openmpi", COEUS_MPI_BEFORE="openmpi"))

    def test_launchers(self):
        def command(*arguments, path="/usr/bin:/bin"):
            done = subprocess.run([ROOT / "tools/mpirun_command.sh", *arguments], capture_output=True, text=True,
                                  env={"PATH": path})
            return done.returncode, done.stdout + done.stderr
        mpirun = self.folder / "mpirun"
        self.assertEqual(command(mpirun), (0, f"{mpirun} --oversubscribe --bind-to none\n"))
        self.assertEqual(command(path=f"{self.folder}:/usr/bin"), (0, "mpirun --oversubscribe --bind-to none\n"))
        self.script("mpirun", "echo HYDRA build details:")
        self.assertEqual(command(mpirun), (0, f"{mpirun} -bind-to none\n"))
        self.assertEqual(command("/nowhere/mpirun"),
                         (1, "/nowhere/mpirun cannot be started: ranks need an MPI's mpirun\n"))
        # a build folder stores its own mpirun
        build = self.folder / "build"
        build.mkdir()
        (build / "CMakeCache.txt").write_text(f"COEUS_MPIRUN:FILEPATH={mpirun}\n")
        self.assertEqual(command(build), (0, f"{mpirun} -bind-to none\n"))
        self.assertEqual(command(build, path=f"{self.folder}:/usr/bin"), (0, "mpirun -bind-to none\n"))

    def test_hdf5_of_another_mpi(self):
        def library(name, *more):
            subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-Wl,--no-as-needed", "-x", "none", *more, "-o",
                            self.folder / name], check=True)

        for name, version in (("libmpi.so", "40.30.4"), ("libmpich.so", "12.2.1")):
            library(f"{name}.{version}", f"-Wl,-soname,{name}.{version[:2]}")
            (self.folder / name).symlink_to(f"{name}.{version}")
        library("libhdf5.so", self.folder / "libmpich.so")
        values = {"CMAKE_READELF": "readelf", "HDF5_LIBRARIES": self.folder / "libhdf5.so"}
        said = self.configure(MPI_CXX_LIBRARIES=self.folder / "libmpi.so", **values)
        self.assertIn("was built with another MPI: it needs libmpich.so.12, but /usr/bin/mpicxx belongs to Open MPI "
                      "4.1.4 (libmpi.so.40.30.4). Install HDF5 for Open MPI 4.1.4", said)
        for good in (self.configure(MPI_CXX_LIBRARIES=self.folder / "libmpich.so", **values), self.configure(**values)):
            self.assertIn("all is well", good)

    def test_bundles_of_open_mpi_4(self):
        def check(mpi="", **programs):
            bodies = {"mpirun": "echo 'mpirun (Open MPI) 5.0.7'", "uname": "echo x86_64"} | programs
            with tempfile.TemporaryDirectory() as folder:
                for name, body in bodies.items():
                    (Path(folder) / name).write_text(f"#!/bin/sh\n{body}\n")
                    (Path(folder) / name).chmod(0o755)
                for name in ("dirname", "head"):
                    (Path(folder) / name).symlink_to(shutil.which(name))
                done = subprocess.run(["/bin/sh", ROOT / "tools/bundle.sh", "--check"], capture_output=True, text=True,
                                      env={"PATH": folder, "COEUS_MPI": mpi})
                return done.returncode, done.stderr
        code, said = check()
        self.assertEqual(code, 2)
        self.assertIn("but this machine's mpirun is mpirun (Open MPI) 5.0.7. Make the bundle on Debian 12", said)
        open_mpi = {"orterun": "exit 0", "orted": "exit 0"}
        self.assertEqual(check(**open_mpi), (0, ""))
        for lacking in open_mpi:
            self.assertEqual(check(**{name: body for name, body in open_mpi.items() if name != lacking})[0], 2)
        self.assertEqual(check(mpi="mpich", **open_mpi), (2, "make bundle: a bundle starts its ranks with Open MPI 4, but "
                                                             "COEUS_MPI = mpich\n"))
        code, said = check(uname="echo aarch64", **open_mpi)
        self.assertEqual(code, 2)
        self.assertIn("a bundle is for x86-64, but this machine is aarch64. Build Coeus here with `make cuda`", said)


class Roots(unittest.TestCase):
    """Refusals of the scripts in tests/systems."""

    ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "amd64")

    def run_script(self, name, *arguments, programs=None, **environment):
        with tempfile.TemporaryDirectory() as folder:
            # programs that would change this machine if the script were wrong
            harmless = dict.fromkeys(("apt-get", "debootstrap", "unshare", "mount", "chroot", "cmake"), "exit 9")
            for program, body in (harmless | {"id": "echo 0"} | (programs or {})).items():
                (Path(folder) / program).write_text(f"#!/bin/sh\n{body}\n")
                (Path(folder) / program).chmod(0o755)
            done = subprocess.run(["/bin/sh", ROOT / "tests/systems" / name, *arguments], capture_output=True, text=True,
                                  timeout=600, env={"PATH": f"{folder}:/usr/bin:/bin"} | environment)
            return done.returncode, done.stdout + done.stderr

    def test_requirements_of_a_root(self):
        user = {"id": "echo 1000"}
        self.assertEqual(self.run_script("debian.sh", "trixie", programs=user),
                         (2, "debian.sh: only root can make a bare Debian\n"))
        self.assertEqual(self.run_script("debian.sh", "trixie", programs=user, COEUS_SKIP="1"),
                         (77, "skipped: only root can make a bare Debian\n"))
        self.assertEqual(self.run_script("debian.sh", "trixie", COEUS_DEBIAN_ARCH=self.ARCH, COEUS_SKIP="1"),
                         (77, "skipped: this machine does not allow mounts (unshare --mount)\n"))
        self.assertEqual(self.run_script("debian.sh", "trixie", programs={"debootstrap": "exit 0"}, COEUS_DEBIAN_ARCH="mips"),
                         (2, "debian.sh: COEUS_DEBIAN_ARCH = mips is not known; the choices are amd64 and arm64\n"))

    def test_a_folder_that_is_not_a_root(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "precious").write_text("kept")
            self.assertEqual(self.run_script("debian.sh", "trixie", COEUS_INSIDE="1", COEUS_ROOT=folder,
                                             COEUS_DEBIAN_ARCH=self.ARCH),
                             (2, f"debian.sh: COEUS_ROOT = {folder} is neither empty nor a root file system "
                                 "made by this script\n"))
            self.assertEqual((Path(folder) / "precious").read_text(), "kept")

    def test_compilers(self):
        for name in ("clang-14", "g++", "icpx-2024"):
            self.assertEqual(self.run_script("compilers.sh", "g++-11", name),
                             (2, f"compilers.sh: {name} is neither g++-VERSION nor clang++-VERSION\n"))
        self.assertEqual(self.run_script("compilers.sh"),
                         (2, "compilers.sh: name at least one compiler, for example compilers.sh g++-11 clang++-14\n"))

    def test_exchange(self):
        done = subprocess.run([sys.executable, "-B", ROOT / "tests/systems/exchange.py", "a=/nowhere", "b=/nowhere"],
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (1, "exchange.py: a=/nowhere: there is no "
                                                          "/nowhere/coeus/build/coeus; give each system as NAME=ROOT\n"))


class Exchange(unittest.TestCase):
    """The comparisons of tests/systems/exchange.py."""

    def test_losses(self):
        steps = {step: 2.0 for step in range(1, exchange.STEPS + 1)}
        self.assertEqual(exchange.furthest(steps, steps), 0)
        self.assertEqual(exchange.furthest(steps, steps | {5: 2.5}), 0.25)
        self.assertEqual(exchange.furthest(steps, steps | {5: 2.5}, 6), 0)
        for wrong in (float("nan"), float("inf")):
            self.assertEqual(exchange.furthest(steps, steps | {5: wrong}), float("inf"))
            self.assertEqual(exchange.furthest(steps | {5: wrong}, steps | {5: wrong}), float("inf"))
        self.assertEqual(exchange.furthest(steps, {1: 2.0}), float("inf"))

    def test_arrays(self):
        try:
            import h5py
        except ImportError:
            self.skipTest("there is no h5py")
        with tempfile.TemporaryDirectory() as folder:
            def write(name, **arrays):
                with h5py.File(f"{folder}/{name}", "w") as file:
                    for key, values in arrays.items():
                        file[f"model/{key}"] = values
                return f"{folder}/{name}"
            a = write("a.h5", w=[1.0, 2.0], v=[3.0])
            self.assertEqual(exchange.differing_arrays(a, write("b.h5", w=[1.0, 2.0], v=[3.0])), (2, []))
            self.assertEqual(exchange.differing_arrays(a, write("c.h5", w=[1.0, 2.0000000000000004], v=[3.0])),
                             (2, ["model/w"]))
            self.assertEqual(exchange.differing_arrays(a, write("d.h5", w=[1.0, 2.0])), (2, ["model/v"]))
            nan = write("n.h5", w=[float("nan"), 2.0], v=[3.0])
            self.assertEqual(exchange.differing_arrays(nan, nan), (2, []))
            for other in (write("e.h5", w=[1.0, 2.0], v=[3.0], u=[1.0]), write("d.h5", w=[1.0, 2.0])):
                self.assertEqual(len(exchange.differing_arrays(a, other)[1]), 1)
                self.assertEqual(len(exchange.differing_arrays(other, a)[1]), 1)
            zero = write("z.h5", w=[0.0])
            for other in (write("y.h5", w=[-0.0]), write("x.h5", w=[[0.0]]), write("i.h5", w=[0])):
                self.assertEqual(exchange.differing_arrays(zero, other), (1, ["model/w"]))

    def failures(self, tokenizer="one", loss=2.0, resumed=2.0, loaded=1.0):
        """The failures that compare() counts for two systems; the arguments describe the second one."""
        try:
            import h5py
        except ImportError:
            self.skipTest("there is no h5py")

        class System:
            def __init__(self, folder, name, tokenizer="one", loss=2.0, resumed=2.0, loaded=1.0):
                self.name, self.folder, self.ran = name, Path(folder) / name, []
                self.tokenizer, self.loss, self.resumed, self.loaded = tokenizer, loss, resumed, loaded

            def write(self, path, value):
                path.parent.mkdir(parents=True, exist_ok=True)
                with h5py.File(path, "w") as file:
                    if value is not None:
                        file["model/w"] = [value]

            def run(self, arguments):
                command, *words = arguments.split()
                self.ran.append(command)
                if command == "tokenizer":
                    (self.folder / "tokenizer").mkdir(parents=True)
                    (self.folder / "tokenizer/tokenizer.json").write_text(self.tokenizer)
                elif command == "convert":
                    self.write(self.folder / words[1], self.loaded)

            def train(self, run):
                file = self.folder / run / exchange.MIDDLE
                if not file.exists():
                    self.write(file, None if self.loaded is None else 1.0)
                steps = range(1, exchange.STEPS + 1)
                return dict.fromkeys(steps, self.loss) if run == "run" else dict.fromkeys(steps[10:], self.resumed)

        with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()) as said:
            systems = [System(folder, "a", loaded=None if loaded is None else 1.0),
                       System(folder, "b", tokenizer, loss, resumed, loaded)]
            failed = exchange.compare(systems)
            for system in systems:
                self.assertEqual(system.ran, ["tokenizer", "info", "convert"])
        self.assertEqual(said.getvalue().count("FAILED"), failed)
        return failed

    def test_comparisons(self):
        self.assertEqual(self.failures(), 0)
        self.assertEqual(self.failures(tokenizer="other"), 1)
        self.assertEqual(self.failures(resumed=2.0000001), 1)
        self.assertEqual(self.failures(resumed=float("nan")), 1)
        self.assertEqual(self.failures(loaded=1.0000000000000002), 1)
        self.assertEqual(self.failures(loaded=None), 2)  # no arrays
        # both ways, and the run of b that a resumes
        self.assertEqual(self.failures(loss=2.0000001), 3)


if __name__ == "__main__":
    unittest.main()
