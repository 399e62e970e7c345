#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what each CUDA kernel takes of a multiprocessor with the table tests/gpu/kernel_resources.txt.

    kernel_resources.py FOLDER               registers, stack, spilled registers and static shared memory, as ptxas
                                             reported them when FOLDER was built (tools/keep_ptxas.sh), and the blocks
                                             that a multiprocessor holds at a time
    kernel_resources.py --launches PROGRAM   threads and dynamic shared memory, which PROGRAM (gpu_launches) prints
    kernel_resources.py --write FOLDER PROGRAM   writes the table, for an intended change; reasons for spills stay

The exit code is 1 if anything differs, or if a kernel spills registers and the table gives no reason for it. It is 77
("skipped") if the build was not made with the table's version of CUDA: another ptxas gives other registers."""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests/gpu/kernel_resources.txt"
SKIPPED = 77
HEAD = """# SPDX-License-Identifier: Apache-2.0
# What each CUDA kernel takes of a multiprocessor. Written by tools/kernel_resources.py, except for the reasons of
# spills. Columns: kernel | threads of a block and bytes of their dynamic shared memory, as its launch with most
# threads has them | registers of a thread, bytes of stack, of spilled registers and of static shared memory, and blocks
# that a multiprocessor holds, for each architecture; "-" for those for which a kernel is not compiled. sm_89 runs what
# is compiled for sm_80
"""
FIELDS = ("registers", "stack", "spilled", "static shared memory", "blocks")
NOT_LAUNCHED = ("gpu: any_kernel",)  # the start asks only whether it exists
# bytes of shared memory of a multiprocessor, and its warps; 65536 registers, 32 blocks
SHARED = {"sm_80": 164 << 10, "sm_89": 100 << 10, "sm_90": 228 << 10, "sm_90a": 228 << 10, "sm_120": 100 << 10}
WARPS = {"sm_80": 64, "sm_89": 48, "sm_90": 64, "sm_90a": 64, "sm_120": 48}
OWN = "sm_90a"  # kernels for one GPU; the others also run on sm_89, whose blocks can have the least shared memory
LEAST_SHARED = 99 << 10


class Refused(Exception):
    """A file that cannot be used; the message says why."""


class Skipped(Exception):
    """Nothing can be compared; the message says why."""


def demangled(names):
    """Short names of kernels: without namespaces, parameters and results."""
    done = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True)
    return [re.sub(r"coeus::|cuda::|\(anonymous namespace\)::", "", name).replace("> >", ">>")
            for name in done.stdout.splitlines()]


def rounded_up(value, unit):
    return -(-value // unit) * unit


def blocks(arch, threads, registers, shared):
    """Blocks that a multiprocessor holds at a time, by CUDA's rules of occupancy; `shared` in bytes of a block."""
    warps = -(-threads // 32)
    by_registers = 65536 // rounded_up(32 * max(registers, 1), 256) // 4 * 4 // warps
    by_shared = SHARED[arch] // (rounded_up(shared, 128) + 1024)  # 1 KiB of each block is the system's
    return min(32, WARPS[arch] // warps, by_registers, by_shared)


def parsed(name, report):
    """{(kernel, architecture): [registers, stack, spilled, static shared memory]} of what ptxas reported of one file."""
    found, kernel = [], None
    for line in report.splitlines():
        if start := re.search(r"Compiling entry function '(\w+)' for '(\w+)'", line):
            kernel = [*start.groups(), None, None, None, 0]
            found.append(kernel)
        elif kernel is None:
            continue
        elif stack := re.match(r"\s*(\d+) bytes stack frame, (\d+) bytes spill stores", line):
            # functions that a kernel calls have lines of their own, after those of the kernel
            if kernel[3] is None:
                kernel[3:5] = map(int, stack.groups())
        elif used := re.search(r"Used (\d+) registers", line):
            kernel[2] = int(used.group(1))
            shared = re.search(r"(\d+) bytes smem", line)
            kernel[5] = int(shared.group(1)) if shared else 0
    if serialized := re.search(r".*wgmma.mma_async instructions are serialized.*", report):
        raise Refused(f"{name}: {serialized.group()}")
    for kernel in found:
        if None in kernel:
            raise Refused(f"the report of {name} has no registers or no stack of {kernel[0]}")
    names = demangled([kernel[0] for kernel in found])
    return {(f"{name}: {short}", kernel[1]): kernel[2:] for short, kernel in zip(names, found)}


def reports(folder):
    """What ptxas reported of all files of a build, as parsed()."""
    objects = sorted(folder.glob("CMakeFiles/coeus_cuda*.dir/**/*.cu.o"))
    if not objects:
        raise Refused(f"{folder} has no CUDA kernels: it is not a build made by `make cuda`")
    found, origin = {}, {}
    for path in objects:
        report = path.with_name(path.name + ".ptxas")
        if not report.exists():
            raise Refused(f"there is no {report}: delete {path} and build again")
        for kernel, used in parsed(path.name.removesuffix(".cu.o"), report.read_text()).items():
            # a file that moved to another folder leaves its object behind
            if kernel in found:
                raise Refused(f"{origin[kernel]} and {path} have the same kernel {kernel[0]}: one of them is of an "
                              f"earlier build, which `ninja -C {folder} -t cleandead` deletes")
            found[kernel], origin[kernel] = used, path
    return found


def toolkit(folder):
    """The version of ptxas of a build, "13.0.88"."""
    cache = (folder / "CMakeCache.txt").read_text()
    nvcc = re.search(r"^CMAKE_CUDA_COMPILER:\w+=(.*)$", cache, re.MULTILINE).group(1)
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"\bV(\d+\.\d+\.\d+)", said).group(1)


def launches(program):
    """{kernel without its file: (threads, dynamic shared memory)}, as the program prints them."""
    symbols, begin = {}, 0
    for line in subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout.splitlines():
        value, _, name = line.rpartition(" ")
        if name == "__executable_start":
            begin = int(value.split()[0], 16)
        elif value.endswith((" t", " T", " W", " w")) and value[:1] != " ":
            symbols.setdefault(int(value.split()[0], 16), name)
    printed = [line.split() for line in subprocess.run([program], capture_output=True, text=True,
                                                       check=True).stdout.splitlines()]
    found = {}
    for name, (_, threads, shared) in zip(demangled([symbols[begin + int(line[0], 16)] for line in printed]), printed):
        # a kernel that two files include is launched from both
        found[name] = max(found.get(name, (0, 0)), (int(threads), int(shared)))
    return found


class Table:
    """toolkit, archs, launches {kernel: (threads, shared) or None}, resources {(kernel, arch): [value of each of
    FIELDS]}, reasons {kernel: why it spills}"""

    def __init__(self, text=""):
        self.toolkit, self.archs, self.launches, self.resources, self.reasons = "", [], {}, {}, {}
        for line in text.splitlines():
            key, _, rest = line.partition(" ")
            if key == "toolkit:":
                self.toolkit = rest
            elif key == "architectures:":
                self.archs = rest.split()
            elif key == "spills:":
                kernel, _, why = rest.partition(" |")
                self.reasons[kernel] = why.strip()
            elif line and not line.startswith("#"):
                kernel, launch, *values = line.split(" | ")
                self.launches[kernel] = None if launch == "-" else tuple(map(int, launch.split()))
                for arch, columns in zip(self.archs, values):
                    if columns == "-":
                        continue
                    self.resources[kernel, arch] = [None if value == "-" else int(value) for value in columns.split()]

    def text(self):
        def shown(values):
            return " ".join("-" if value is None else str(value) for value in values)
        lines = [f"toolkit: {self.toolkit}", f"architectures: {' '.join(self.archs)}"]
        lines += [f"spills: {kernel} | {why}".rstrip() for kernel, why in sorted(self.reasons.items())]
        for kernel, launch in sorted(self.launches.items()):
            columns = [shown(self.resources.get((kernel, arch), [None])) for arch in self.archs]
            while columns[-1] == "-":
                columns.pop()
            lines.append(" | ".join([kernel, shown(launch) if launch else "-"] + columns))
        return HEAD + "\n".join(lines) + "\n"


def with_blocks(resources, launches_of):
    """Adds the blocks of a multiprocessor to each kernel's values."""
    result = {}
    for (kernel, arch), values in resources.items():
        launch = launches_of.get(kernel)
        held = blocks(arch, launch[0], values[0], launch[1] + values[3]) if launch else None
        result[kernel, arch] = [*values, held]
    return result


def compared_resources(table, resources):
    """What differs between the table and a build, and what spills without a reason."""
    found = []
    archs = [arch for arch in table.archs if any(arch == of for _, of in resources)]
    resources = {key: values for key, values in resources.items() if key[1] in archs}
    now = with_blocks(resources, table.launches)
    then = {key: values for key, values in table.resources.items() if key[1] in archs}
    found += [f"{kernel} on {arch} is new" for kernel, arch in sorted(now.keys() - then.keys())]
    found += [f"{kernel} on {arch} is in the table, but not in the build"
              for kernel, arch in sorted(then.keys() - now.keys())]
    for key in sorted(now.keys() & then.keys()):
        changes = [f"{field} were {was}, are {value}" for field, was, value in zip(FIELDS, then[key], now[key])
                   if was != value]
        if changes:
            found.append(f"{key[0]} on {key[1]}: {'; '.join(changes)}")
    spilling = {key: values[2] for key, values in now.items() if values[2] > 0}
    found += [f"{kernel} on {arch} spills {spilled} bytes of registers, and the table gives no reason"
              for (kernel, arch), spilled in sorted(spilling.items()) if not table.reasons.get(kernel)]
    if archs == table.archs:
        found += [f"{kernel} has a reason to spill registers, but does not spill"
                  for kernel in sorted(table.reasons.keys() - {kernel for kernel, _ in spilling})]
    return found


def compared_launches(table, printed):
    """What differs between the table and the launches that the program printed."""
    found, known = [], set()
    for kernel, was in sorted(table.launches.items()):
        name = kernel.split(": ", 1)[1]
        known.add(name)
        now = printed.get(name)
        if kernel in NOT_LAUNCHED:
            continue
        if now is None:
            found.append(f"{kernel}: no case of the tests launches it")
        elif was is None:
            found.append(f"{kernel} is launched, but the table has no launch of it")
        else:
            found += [f"{kernel}: {what} were {old}, are {new}"
                      for what, old, new in zip(("threads", "bytes of dynamic shared memory"), was, now) if old != new]
            if now[1] > LEAST_SHARED and (kernel, OWN) not in table.resources:
                found.append(f"{kernel} takes {now[1]} bytes of dynamic shared memory, but sm_89 has {LEAST_SHARED}")
    return found + [f"{name} is launched, but is not in the table" for name in sorted(printed.keys() - known)]


def check_build(table, folder):
    version = toolkit(folder)
    resources = reports(folder)
    if version != table.toolkit:
        raise Skipped(f"registers and spills of kernels were not compared: the table is for CUDA {table.toolkit}, but "
                      f"this is {version}")
    archs = sorted({arch for _, arch in resources})
    if not set(archs) & set(table.archs):
        raise Skipped(f"registers and spills of kernels were not compared: the table is for {', '.join(table.archs)}, "
                      f"but this build for {', '.join(archs)}")
    return compared_resources(table, resources), f"{len(resources)} kernels"


def write(old, folder, program):
    table = Table()
    table.toolkit = toolkit(folder)
    resources = {key: values for key, values in reports(folder).items() if key[1] in SHARED}
    printed = launches(program)
    table.archs = sorted({arch for _, arch in resources}, key=lambda arch: (int(re.sub(r"\D", "", arch)), arch))
    for kernel in sorted({kernel for kernel, _ in resources}):
        table.launches[kernel] = printed.get(kernel.split(": ", 1)[1])
    table.resources = with_blocks(resources, table.launches)
    spilling = {kernel for (kernel, _), values in table.resources.items() if values[2] > 0}
    table.reasons = {kernel: old.reasons.get(kernel, "") for kernel in sorted(spilling)}
    TABLE.write_text(table.text())
    print(f"{TABLE}: {len(table.launches)} kernels")
    for kernel, why in table.reasons.items():
        if not why:
            print(f"{kernel} spills registers: write the reason at the end of its line \"spills: ...\"")


def main(arguments):
    table = Table(TABLE.read_text() if TABLE.exists() else "")
    try:
        if len(arguments) == 3 and arguments[0] == "--write":
            write(table, Path(arguments[1]), Path(arguments[2]))
            return 0
        if len(arguments) == 2 and arguments[0] == "--launches":
            found, what = compared_launches(table, launches(Path(arguments[1]))), f"{len(table.launches)} launches"
        elif len(arguments) == 1 and not arguments[0].startswith("-"):
            found, what = check_build(table, Path(arguments[0]))
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except Skipped as why:
        print(f"skipped: {why}")
        return SKIPPED
    except Refused as why:
        found, what = [str(why)], ""
    for line in found:
        print(f"kernel_resources.py: {line}", file=sys.stderr)
    if found and what:
        print(f"kernel_resources.py: compared with {TABLE.relative_to(ROOT)}. If the change is intended: "
              "tools/kernel_resources.py --write build-cuda build/tests/gpu_launches", file=sys.stderr)
    elif not found:
        print(f"{what} are as in {TABLE.relative_to(ROOT)}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
