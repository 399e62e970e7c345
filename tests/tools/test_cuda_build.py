# SPDX-License-Identifier: Apache-2.0
"""Tests of the tools that build for GPUs, with recorded output of NVIDIA's programs, and with programs that stand in for
them."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import kernel_instructions  # noqa: E402
import kernel_resources  # noqa: E402
from kernel_resources import Table  # noqa: E402

# of ptxas 13.0.88: a forward of attention, and the same with __launch_bounds__(128, 8), which leaves it 64 registers
MANGLED = ("_ZN5coeus4cuda49_GLOBAL__N__f598ca38_16_attention_mma_cu_45df8ca120attention_mma_kernelINS_4bf16ENS0_10HeadWidths"
           "ILi128ELi128EEEEEvNS0_5HeadsIT_EEPfNS6_IKS3_EESB_SB_NS0_9DocumentsENS_14AttentionShapeE")
REPORT = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '{0}' for 'sm_90'
ptxas info    : Function properties for {0}
    {1}
ptxas info    : Used {2}
ptxas info    : Compile time = 3217.419 ms
"""
GOOD = REPORT.format(MANGLED, "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", "254 registers, used 1 barriers")
SPILLING = REPORT.format(MANGLED, "1112 bytes stack frame, 2056 bytes spill stores, 2068 bytes spill loads",
                         "64 registers, used 1 barriers, 1112 bytes cumulative stack size")
KERNEL = "attention_mma: attention_mma_kernel<bf16, HeadWidths<128, 128>>"
LISTED = f"toolkit: 13.0.88\narchitectures: sm_90\n{KERNEL} | 128 70656 | 254 0 0 0 2\n"


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text + "\n")
    path.chmod(0o755)


class WithFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()


class KernelResources(WithFolder):
    """tools/kernel_resources.py"""

    def build(self, report, version="13.0.88"):
        """Makes a build folder with one CUDA object, which ptxas reported so."""
        program(self.folder / "nvcc", f"echo 'Cuda compilation tools, release 13.0, V{version}'")
        (self.folder / "CMakeCache.txt").write_text(f"CMAKE_CUDA_COMPILER:FILEPATH={self.folder}/nvcc\n")
        objects = self.folder / "CMakeFiles/coeus_cuda.dir/src/kernels/cuda/attention"
        objects.mkdir(parents=True, exist_ok=True)
        (objects / "attention_mma.cu.o").touch()
        (objects / "attention_mma.cu.o.ptxas").write_text(report)

    def compared(self, report, table=LISTED):
        self.build(report)
        return kernel_resources.check_build(Table(table), self.folder)[0]

    def test_what_is_listed_passes(self):
        self.assertEqual(self.compared(GOOD), [])

    def test_a_planted_spill_is_found(self):
        self.assertEqual(self.compared(SPILLING), [
            f"{KERNEL} on sm_90: registers were 254, are 64; stack were 0, are 1112; spilled were 0, are 2056; "
            "blocks were 2, are 3",
            f"{KERNEL} on sm_90 spills 2056 bytes of registers, and the table gives no reason"])

    def test_a_spill_needs_a_reason(self):
        spills = LISTED.replace("254 0 0 0 2", "64 1112 2056 0 3")
        self.assertEqual(self.compared(SPILLING, spills), [
            f"{KERNEL} on sm_90 spills 2056 bytes of registers, and the table gives no reason"])
        self.assertEqual(len(self.compared(SPILLING, spills + f"spills: {KERNEL} |\n")), 1)
        reason = f"spills: {KERNEL} | eight blocks hide the latency\n"
        self.assertEqual(self.compared(SPILLING, spills + reason), [])
        self.assertEqual(self.compared(GOOD, LISTED + reason),
                         [f"{KERNEL} has a reason to spill registers, but does not spill"])

    def test_kernels_that_are_new_or_gone(self):
        self.assertEqual(self.compared(GOOD, LISTED.replace("<128", "<96")), [
            f"{KERNEL} on sm_90 is new",
            f"{KERNEL.replace('<128', '<96')} on sm_90 is in the table, but not in the build"])

    def test_a_kernel_for_one_gpu_has_a_column_of_its_own(self):
        report = GOOD.replace("sm_90", "sm_90a")
        own = LISTED.replace("sm_90", "sm_90 sm_90a").replace(" | 254", " | - | 254")
        self.assertEqual(self.compared(report, own), [])
        self.assertEqual(Table(own).text(), kernel_resources.HEAD + own)
        self.assertEqual(self.compared(GOOD, own), [f"{KERNEL} on sm_90 is new"])
        name, shared = KERNEL.split(": ", 1)[1], 100 << 10
        said = kernel_resources.compared_launches(Table(LISTED), {name: (128, shared)})
        self.assertIn(f"{KERNEL} takes {shared} bytes of dynamic shared memory, but sm_89 has {99 << 10}", said)
        self.assertEqual(len(kernel_resources.compared_launches(Table(own), {name: (128, shared)})), len(said) - 1)

    def test_kernels_for_sm_89_have_its_limits(self):
        self.assertEqual(kernel_resources.blocks("sm_89", 128, 64, 0), 8)  # by registers
        self.assertEqual(kernel_resources.blocks("sm_89", 256, 16, 0), 6)  # by warps
        self.assertEqual(kernel_resources.blocks("sm_80", 256, 16, 0), 8)
        self.assertEqual(kernel_resources.blocks("sm_89", 32, 16, 40 << 10), 2)  # by shared memory

    def test_wgmma_that_waits_for_each_product_is_refused(self):
        said = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to ..."
        with self.assertRaisesRegex(kernel_resources.Refused, "attention_mma: ptxas info .* are serialized due to"):
            self.compared(GOOD + said)

    def test_another_toolkit_or_gpu_is_skipped(self):
        self.build(SPILLING, "13.1.20")
        with self.assertRaisesRegex(kernel_resources.Skipped, "the table is for CUDA 13.0.88, but this is 13.1.20"):
            kernel_resources.check_build(Table(LISTED), self.folder)
        self.build(SPILLING.replace("sm_90", "sm_100"))
        with self.assertRaisesRegex(kernel_resources.Skipped, "the table is for sm_90, but this build for sm_100"):
            kernel_resources.check_build(Table(LISTED), self.folder)
        self.build(GOOD, "11.0.1")
        out = StringIO()
        with redirect_stdout(out):
            self.assertEqual(kernel_resources.main([str(self.folder)]), 77)
        self.assertRegex(out.getvalue(), r"\Askipped: registers and spills of kernels were not compared: .* this is 11\.0\.1\n\Z")

    def test_what_cannot_be_compared(self):
        with self.assertRaisesRegex(kernel_resources.Refused, "has no CUDA kernels"):
            kernel_resources.reports(self.folder)
        self.build(GOOD)
        report = next(self.folder.rglob("*.ptxas"))
        moved = report.parents[1] / report.name
        moved.with_suffix("").touch()
        moved.write_text(GOOD)
        with self.assertRaisesRegex(kernel_resources.Refused, "the same kernel attention_mma: .* of an earlier build"):
            kernel_resources.reports(self.folder)
        moved.with_suffix("").unlink()
        report.write_text(GOOD.replace("Used", "Usd"))
        with self.assertRaisesRegex(kernel_resources.Refused, "has no registers or no stack of _ZN5coeus"):
            kernel_resources.reports(self.folder)
        report.unlink()
        error = StringIO()
        with redirect_stderr(error):
            self.assertEqual(kernel_resources.main([str(self.folder)]), 1)
        self.assertIn("attention_mma.cu.o and build again", error.getvalue())

    def test_launches(self):
        def compared(**printed):
            return kernel_resources.compared_launches(Table(LISTED), {name: value for name, value in printed.items()})
        name = KERNEL.split(": ", 1)[1]
        self.assertEqual(compared(**{name: (128, 70656)}), [])
        self.assertEqual(compared(**{name: (256, 99), "new_kernel": (32, 0)}), [
            f"{KERNEL}: threads were 128, are 256", f"{KERNEL}: bytes of dynamic shared memory were 70656, are 99",
            "new_kernel is launched, but is not in the table"])
        self.assertEqual(compared(), [f"{KERNEL}: no case of the tests launches it"])

    def test_blocks_of_a_multiprocessor(self):
        # NVIDIA's rules: 64 warps, 32 blocks, 65536 registers in portions of 256 a warp, 1 KiB of each block's shared
        # memory for the system
        for arch, threads, registers, shared, expected in (
                ("sm_80", 256, 32, 0, 8), ("sm_80", 256, 33, 0, 6), ("sm_80", 32, 16, 0, 32), ("sm_80", 1024, 64, 0, 1),
                ("sm_80", 128, 255, 0, 2), ("sm_80", 128, 128, 100000, 1), ("sm_90", 128, 128, 100000, 2),
                ("sm_80", 1024, 65, 0, 0)):
            self.assertEqual(kernel_resources.blocks(arch, threads, registers, shared), expected)

    def test_the_table_is_read_as_it_is_written(self):
        text = kernel_resources.TABLE.read_text()
        self.assertEqual(Table(text).text(), text)
        self.assertTrue(all(Table(text).reasons.values()), "a spill without a reason")

    def test_reports_are_kept_and_warnings_printed(self):
        program(self.folder / "nvcc", "printf 'ptxas info    : Used 3 registers\\na.cu(3): warning: x\\n' >&2; exit 5")
        done = subprocess.run([ROOT / "tools/keep_ptxas.sh", self.folder / "nvcc", "-c", "a.cu", "-o", self.folder / "a.o"],
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (5, "", "a.cu(3): warning: x\n"))
        self.assertEqual((self.folder / "a.o.ptxas").read_text(), "ptxas info    : Used 3 registers\n")
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"nvcc", "a.o.ptxas"})


class KernelInstructions(WithFolder):
    """tools/kernel_instructions.py"""

    # as nvdisasm -c prints it: a loop of two loads, one product and a sum, a load before it, and stores after it
    CODE = """
\t.section\t.text.product_kernel,"ax",@progbits
        /*0000*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0010*/               @!P0 BRA `(.L_x_1) ;
.L_x_0:
        /*0020*/                   LDSM.16.M88.4 R8, [R6] ;
        /*0030*/                   LDG.E.CONSTANT R12, desc[UR4][R2.64] ;
        /*0040*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*0050*/              @!UP0 STL [R1], R4 ;
        /*0060*/                   FADD.FTZ R4, R4, R8 ;
        /*0070*/               @P1 BRA `(.L_x_0) ;
.L_x_1:
        /*0080*/                   STG.E.64.STRONG.SM desc[UR4][R2.64], R4 ;
        /*0090*/              @!P0 STG.E desc[UR4][R2.64], R4 ;
        /*00a0*/                   EXIT ;
"""

    def test_instructions_in_loops(self):
        code = kernel_instructions.code_of(self.CODE)
        self.assertEqual(list(code), ["product_kernel"])
        self.assertEqual(kernel_instructions.counts_of(*code["product_kernel"]),
                         {"HMMA": 1, "QMMA": 0, "LDSM": 1, "LDG.128": 0, "FADD": 1, "DFMA": 0, "LDL": 0, "STL": 1,
                          "narrow STG": 1, "double": 0, "wide loops": []})
        straight = self.CODE.replace("BRA `(.L_x_0)", "BRA `(.L_x_1)")
        counts = kernel_instructions.counts_of(*kernel_instructions.code_of(straight)["product_kernel"])
        self.assertEqual({name for name, count in counts.items() if count}, {"narrow STG"})

    # a loop over packs of 8 elements: two loads of 16 bytes, a division with a slow path, and one of two ways; after
    # it a loop over single elements, and a slow path outside that jumps back into the first loop
    PACKS = """
\t.section\t.text.pack_kernel,"ax",@progbits
        /*0000*/                   MOV R1, R2 ;
.L_x_0:
        /*0010*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/                   LDG.E.128.CONSTANT R8, desc[UR4][R2.64+0x100] ;
        /*0030*/                   MUFU.RCP R12, R4 ;
        /*0040*/               @P0 BRA `(.L_x_1) ;
        /*0050*/                   MOV R13, 0x60 ;
        /*0060*/                   CALL.REL.NOINC `($pack_kernel$__internal_0_$__cuda_sm3x_div_rn_noftz_f32_slowpath) ;
        /*0070*/                   MOV R12, R14 ;
        /*0080*/                   MOV R12, R14 ;
        /*0090*/                   MOV R12, R14 ;
.L_x_1:
        /*00a0*/              @!P1 BRA `(.L_x_6) ;
.L_x_5:
        /*00b0*/               @P2 BRA `(.L_x_2) ;
        /*00c0*/                   FMUL R4, R4, R12 ;
        /*00d0*/                   BRA `(.L_x_3) ;
.L_x_2:
        /*00e0*/                   FADD R4, R4, R12 ;
        /*00f0*/                   FADD R4, R4, R12 ;
        /*0100*/                   FADD R4, R4, R12 ;
.L_x_3:
        /*0110*/                   STG.E.128 desc[UR4][R2.64], R4 ;
        /*0120*/               @P3 BRA `(.L_x_0) ;
.L_x_4:
        /*0130*/                   LDG.E R4, desc[UR4][R2.64] ;
        /*0140*/               @P1 BRA `(.L_x_4) ;
        /*0150*/                   EXIT ;
.L_x_6:
        /*0160*/                   CALL.REL.NOINC `($pack_kernel$__internal_0_$__cuda_sm3x_div_rn_noftz_f32_slowpath) ;
        /*0170*/                   BRA `(.L_x_5) ;
.L_x_7:
        /*0180*/                   BRA `(.L_x_7) ;
"""

    def test_arithmetic_in_double(self):
        double = self.CODE.replace("HMMA.16816.F32.BF16 R4, R8, R12, R4", "DFMA R4, R8, R12, R4 ;\n  /*0048*/  MUFU.RCP64H R5, R6 ;"
                                   "\n  /*0049*/  F2F.F32.F64 R5, R6")
        counts = kernel_instructions.counts_of(*kernel_instructions.code_of(double)["product_kernel"])
        self.assertEqual(counts["double"], 2)

    def test_instructions_of_a_pass_through_a_loop(self):
        def loops(text):
            return kernel_instructions.counts_of(*kernel_instructions.code_of(text)["pack_kernel"])["wide loops"]
        # 4, the jump over the slow path, the longer of two ways with 4, and 2
        way = kernel_instructions.Way(instructions=11, loaded=32, narrow_loads=0, before_products=2, before_stores=2)
        self.assertEqual(loops(self.PACKS), [way])
        self.assertEqual(repr(way), "instructions 11 loaded 32 narrow_loads 0 before_products 2 before_stores 2")
        self.assertEqual(kernel_instructions.per_element([way, way._replace(instructions=3, loaded=16)], 4), 11 / 8)
        more = self.PACKS.replace("STG.E.128", "FADD R4, R4, R5 ;\n        /*0108*/        STG.E.128")
        self.assertEqual(loops(more), [way._replace(instructions=12)])
        # a loop around it does not count
        around = self.PACKS.replace("EXIT", "@P4 BRA `(.L_x_8) ;\n        /*0158*/  EXIT").replace(
            "        /*0000*/", ".L_x_8:\n        /*0000*/")
        self.assertEqual(loops(around), [way])
        self.assertEqual(loops(self.PACKS.replace(".128", ".64")), [])
        # loads after a product or a store, and a narrow one
        late = self.PACKS.replace("LDG.E.128.CONSTANT R8", "FFMA R4, R4, R4, R4 ;\n        /*0018*/  LDG.E.128.CONSTANT R8")
        self.assertEqual(loops(late), [way._replace(instructions=12, before_products=1)])
        stored = self.PACKS.replace("LDG.E.128.CONSTANT R8", "STG.E [R2], R4 ;\n        /*0018*/  LDG.E.64 R8")
        self.assertEqual(loops(stored), [way._replace(instructions=12, loaded=24, narrow_loads=1, before_products=1,
                                                      before_stores=1)])

    def test_limits(self):
        def broken(limits, loops=(), **count):
            found = {("product_kernel", "sm_90"): dict.fromkeys((*kernel_instructions.COUNTED, "narrow STG", "double"), 0) |
                     count | {"wide loops": [kernel_instructions.Way(*loop) for loop in loops]}}
            return kernel_instructions.broken(kernel_instructions.parsed_limits(limits), found)
        products = "LDSM per HMMA: product_.* | 0.5\n"
        self.assertEqual(broken(products, HMMA=8, LDSM=4), [])
        self.assertEqual(broken(products, HMMA=8, LDSM=5), [
            "product_kernel on sm_90: 5 LDSM for 8 HMMA, 0.625 for each, more than 0.5"])
        # a product of 8-bit floats has twice the depth
        self.assertEqual(broken(products, QMMA=4, LDSM=4), [])
        self.assertEqual(broken(products, QMMA=4, LDSM=5), [
            "product_kernel on sm_90: 5 LDSM for 8 HMMA, 0.625 for each, more than 0.5"])
        self.assertEqual(broken("", HMMA=8), [
            'product_kernel on sm_90: it has products of tensor cores, but no line "LDSM per HMMA: ..."'])
        self.assertEqual(broken("", LDL=2, STL=1), [
            "product_kernel on sm_90: 3 accesses of local memory in a loop; make it fit into registers, or write a line "
            '"local: KERNEL | reason"'])
        self.assertEqual(broken("local: product_kernel | why\n", LDL=2), [])
        self.assertEqual(broken("wide: product_kernel\n"),
                         ["product_kernel on sm_90: no loop loads 16 bytes at a time (LDG.128)"])
        elements = "instructions per element: product_.* | 20.5 | 10\n"
        self.assertEqual(broken(elements, [(164, 80, 0, 0, 0), (100, 16, 0, 0, 0)]), [])
        self.assertEqual(broken(elements, [(165, 80, 0, 0, 0), (100, 16, 0, 0, 0)]), [
            "product_kernel on sm_90: 20.6 instructions for each element, more than 20.5"])
        self.assertEqual(broken(elements), ["product_kernel on sm_90: no loop loads 16 bytes at a time (LDG.128), so that its "
                                            "instructions for each element cannot be counted"])
        early = "loads before products: product_.* | 5\nloads before stores: product_.* | 4\nnarrow loads: product_.* | 0\n"
        self.assertEqual(broken(early, [(90, 80, 0, 5, 4)]), [])
        self.assertEqual(broken(early, [(90, 80, 1, 4, 3)]), [
            "product_kernel on sm_90: 4 loads of 16 bytes before the first product of floats of the longest loop, fewer than 5",
            "product_kernel on sm_90: 3 loads of 16 bytes before the first store of the longest loop, fewer than 4",
            "product_kernel on sm_90: 1 loads of less than 16 bytes in the longest loop, more than 0"])
        self.assertEqual(len(broken(early)), 2)
        for kind, name in (("unfused", "FADD"), ("fused doubles", "DFMA"), ("narrow stores", "narrow STG"),
                           ("double", "double")):
            self.assertEqual(broken(f"{kind}: product_.* | 2\n", **{name: 2}), [])
            self.assertEqual(broken(f"{kind}: product_.* | 2\n", **{name: 3}), [
                f"product_kernel on sm_90: 3 {name}, more than 2"])
        self.assertEqual(broken("wide: other_kernel\n"), ['"wide: other_kernel" is no kernel\'s name'])

    def test_a_build(self):
        build = self.folder / "build"
        path = build / "CMakeFiles/coeus_cuda_8_bit.dir/a.cu.o"
        path.parent.mkdir(parents=True)
        path.touch()
        (build / "CMakeCache.txt").write_text(f"CMAKE_CUDA_COMPILER:FILEPATH={self.folder}/nvcc\n")
        program(self.folder / "cuobjdump", "echo 'Extracting ELF file 1: a.sm_90.cubin'; : >a.sm_90.cubin")
        program(self.folder / "nvdisasm", f"cat <<'END'\n{self.CODE}\nEND")
        out = StringIO()
        with redirect_stdout(out):
            self.assertEqual(kernel_instructions.main([str(build), "--list"]), 0)
        self.assertEqual(out.getvalue(), "product_kernel sm_90 HMMA 1 LDSM 1 FADD 1 STL 1 narrow STG 1\n")
        error = StringIO()
        with redirect_stderr(error):
            self.assertEqual(kernel_instructions.main([str(build)]), 1)
        self.assertIn("1 accesses of local memory in a loop", error.getvalue())
        (self.folder / "nvdisasm").unlink()
        out = StringIO()
        with redirect_stdout(out), unittest.mock.patch.dict(os.environ, {"PATH": str(self.folder), "VIRTUAL_ENV": "",
                                                                        "COEUS_CUDA_PYTHON": ""}):
            self.assertEqual(kernel_instructions.main([str(build)]), 77)
        self.assertRegex(out.getvalue(), "^skipped: the instructions of kernels were not counted: there is no cuobjdump or")


class Toolkits(WithFolder):
    """tools/find_nvcc.sh, tools/compile_matrix.sh and tools/cuda12_toolkit.sh"""

    def script(self, name, *arguments, **environment):
        done = subprocess.run(["/bin/sh", ROOT / "tools" / name, *arguments], capture_output=True, text=True, timeout=600,
                              env={"PATH": str(self.folder)} | environment)
        return done.returncode, done.stdout, done.stderr

    def test_where_nvcc_is_found(self):
        (self.folder / "sed").symlink_to(shutil.which("sed"))
        said = "Cuda compilation tools, release 12.4, V12.4.131"
        for place, environment in (("home/bin/nvcc", {"CUDA_HOME": f"{self.folder}/home"}),
                                   ("env/lib/python3.11/site-packages/nvidia/cu13/bin/nvcc",
                                    {"COEUS_CUDA_PYTHON": f"{self.folder}/env"})):
            program(self.folder / place, f"echo '{said}'")
            self.assertEqual(self.script("find_nvcc.sh", **environment), (0, f"{self.folder / place}\n", ""))
            self.assertEqual(self.script("find_nvcc.sh", "--major", **environment), (0, "12\n", ""))

    def test_no_nvcc(self):
        if Path("/usr/local/cuda/bin/nvcc").exists():
            self.skipTest("this machine has a CUDA toolkit in /usr/local/cuda")
        none = "there is no nvcc in CUDA_HOME, /usr/local/cuda, the PATH or a Python environment\n"
        self.assertEqual(self.script("find_nvcc.sh"), (1, "", none))
        (self.folder / "dirname").symlink_to(shutil.which("dirname"))
        self.assertEqual(self.script("compile_matrix.sh"),
                         (77, "skipped: the kernels were not compiled for all GPUs: " + none, ""))

    def test_refusals_of_cuda12_toolkit(self):
        for name in ("mktemp", "rm", "mkdir", "dirname"):
            (self.folder / name).symlink_to(shutil.which(name))
        new = str(self.folder / "new")

        def said(*arguments, **programs):
            for name, body in ({"uname": "echo x86_64", "dpkg-deb": "exit 9", "apt-get": "exit 9"} | programs).items():
                program(self.folder / name, body)
            code, out, error = self.script("cuda12_toolkit.sh", *arguments)
            self.assertEqual((code, out), (2, ""))
            return error
        self.assertEqual(said(), "cuda12_toolkit.sh: usage: cuda12_toolkit.sh FOLDER [DEBS]\n")
        self.assertEqual(said(str(self.folder)), f"cuda12_toolkit.sh: {self.folder} exists already; name a new folder\n")
        self.assertEqual(said(new, uname="echo aarch64"),
                         "cuda12_toolkit.sh: the packages are for x86-64, but this machine is aarch64\n")
        self.assertEqual(said(new, str(self.folder)), f"cuda12_toolkit.sh: {self.folder} has no nvidia-cuda-toolkit\n")
        for name in ("sed", "head"):
            (self.folder / name).symlink_to(shutil.which(name))
        self.assertEqual(said(new, **{"apt-get": "exit 0"}),
                         "cuda12_toolkit.sh: this system names no Debian mirror; set COEUS_DEBIAN_MIRROR\n")
        self.assertFalse(Path(new).exists())


class Options(WithFolder):
    """cmake/cuda.cmake"""

    def test_lines_are_named_and_newer_gpus_get_ptx(self):
        found = subprocess.run(["/bin/sh", ROOT / "tools/find_nvcc.sh"], capture_output=True, text=True)
        if found.returncode:
            self.skipTest("there is no nvcc")
        done = subprocess.run(["cmake", "-S", ROOT, "-B", self.folder / "build", "-G", "Ninja", "-DCOEUS_CUDA=ON",
                               "-DCOEUS_BUILD_TESTS=OFF", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        commands = [entry["command"] for entry in json.loads((self.folder / "build/compile_commands.json").read_text())
                    if entry["file"].endswith(".cu")]
        usual = [command for command in commands if "/coeus_cuda.dir/" in command]
        self.assertGreater(len(usual), 20)
        for command in commands:
            self.assertIn(" -lineinfo ", command)
        for command in usual:
            self.assertIn("code=[compute_90,sm_90]", command)


class Bundle(WithFolder):
    """tools/bundle_run.sh, which starts the programs of a bundle"""

    def setUp(self):
        super().setUp()
        run = (ROOT / "tools/bundle_run.sh").read_text().replace("@cuda@", "12").replace("@driver@", "525")
        self.bundle = self.folder / "bundle"
        program(self.bundle / "coeus", run.removeprefix("#!/bin/sh\n"))
        (self.bundle / "bin").mkdir()
        self.library(self.folder / "cuda12/lib64")
        subprocess.run(["gcc", "-x", "c", "-", "-o", self.bundle / "bin/coeus", "-Wl,--no-as-needed", "-x", "none",
                        self.folder / "cuda12/lib64/libcublasLt.so.12"], input=b'#include <stdio.h>\nint main() { puts("ran"); }',
                       check=True)

    def library(self, folder, major=12):
        folder.mkdir(parents=True)
        subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", f"-Wl,-soname,libcublasLt.so.{major}", "-o",
                        folder / f"libcublasLt.so.{major}"], check=True)

    def start(self, smi=None, **environment):
        """The exit code and what is printed, with programs of the system and this nvidia-smi."""
        path = self.folder / "path"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        for name in ("dirname", "ldd", "sed", "tr", "bash", "sh", "cat"):
            (path / name).symlink_to(shutil.which(name))
        if smi is not None:
            program(path / "nvidia-smi", smi)
        done = subprocess.run([self.bundle / "coeus"], capture_output=True, text=True, env={"PATH": str(path)} | environment)
        return done.returncode, done.stdout + done.stderr

    def test_libraries_of_cuda(self):
        self.assertEqual(self.start(CUDA_HOME=str(self.folder / "cuda12")), (0, "ran\n"))
        environment = self.folder / "env"
        shutil.copytree(self.folder / "cuda12/lib64", environment / "lib/python3.11/site-packages/nvidia/cublas/lib")
        for name in ("COEUS_CUDA_PYTHON", "VIRTUAL_ENV"):
            self.assertEqual(self.start(**{name: str(environment)}), (0, "ran\n"))

    def test_missing_libraries(self):
        code, said = self.start()
        self.assertEqual(code, 3)
        self.assertRegex(said, r"\Acoeus: this bundle needs CUDA 12 \(driver 525 or newer\); found no driver \(nvidia-smi\).*; "
                               r"libcublasLt\.so\.12 not found\. Set CUDA_HOME to a CUDA 12, or COEUS_CUDA_PYTHON to a Python "
                               r"environment with its packages\n\Z")
        header = "| NVIDIA-SMI 550.54.14    Driver Version: 550.54.14      CUDA Version: 12.4     |"
        self.assertIn("; found driver 550.54.14, CUDA 12.4", self.start(f"echo '{header}'")[1])
        self.assertIn("; found no driver (nvidia-smi)", self.start("echo 'NVIDIA-SMI has failed'; exit 9")[1])

    def test_libraries_of_another_version(self):
        other = self.folder / "cuda11/lib64"
        self.library(other, 11)
        code, said = self.start(CUDA_HOME=str(other.parent))
        self.assertEqual(code, 3)
        self.assertIn(f"found no driver (nvidia-smi); {other} is CUDA 11;", said)
        environment = self.folder / "env"
        self.library(environment / "lib/python3.11/site-packages/nvidia/cublas/lib", 11)
        said = self.start(COEUS_CUDA_PYTHON=str(environment), VIRTUAL_ENV=str(environment))[1]
        self.assertEqual(said.count(" is CUDA 11"), 1)


if __name__ == "__main__":
    os.chdir(ROOT)
    import unittests
    unittests.main()
