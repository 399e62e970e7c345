#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the machine code of CUDA kernels against the limits in tests/gpu/kernel_instructions.txt.

    kernel_instructions.py FOLDER          a build with CUDA
    kernel_instructions.py FOLDER --list   prints what the loops of each kernel contain

It counts the instructions in loops: loads from shared memory for tensor cores (LDSM) and their products (HMMA; QMMA of
8-bit floats, which has twice the depth and counts twice), loads of 16 bytes from global memory (LDG.128), sums of floats
that are not fused with a product (FADD), and loads and stores of a thread's local memory (LDL, STL), which the compiler
uses for what does not fit into registers. In the whole kernel it counts stores of less than 8 bytes in global memory
(narrow STG) and arithmetic in double. For kernels that work element by element it counts all instructions of a pass
through the longest loop with loads of 16 bytes, by the longest way that calls no subroutine (the slow paths of divisions
and roots), and divides them by the elements that these loads bring; and the loads that come early in that way.
NVIDIA's cuobjdump and nvdisasm are looked for next to nvcc, in the PATH, and among the nvidia packages of a Python
environment (COEUS_CUDA_PYTHON, VIRTUAL_ENV). Without them the exit code is 77 ("skipped"). It is 1 if a limit is
broken."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import kernel_resources

LIMITS = kernel_resources.ROOT / "tests/gpu/kernel_instructions.txt"
INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]+\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)(.*);")
COUNTED = ("HMMA", "QMMA", "LDSM", "LDG.128", "FADD", "LDL", "STL")


def tool(name, folder):
    """The path of one of NVIDIA's programs, or None."""
    cache = (folder / "CMakeCache.txt").read_text()
    nvcc = Path(re.search(r"^CMAKE_CUDA_COMPILER:\w+=(.*)$", cache, re.MULTILINE).group(1))
    places = [nvcc.parent / name]
    for variable in ("COEUS_CUDA_PYTHON", "VIRTUAL_ENV"):
        places += Path(os.environ.get(variable) or "/nowhere").glob(f"lib/python3*/site-packages/nvidia/*/bin/{name}")
    return next((path for path in places if path.is_file()), None) or shutil.which(name)


def code_of(text):
    """{kernel: (instructions, {label: number of the instruction after it})} of what nvdisasm -c prints. An instruction:
    (name, operands, whether it has a predicate)."""
    found, current = {}, None
    for line in text.splitlines():
        if section := re.match(r"\s*\.section\s+\.text\.([^,\s]+),", line):
            current = found.setdefault(section.group(1), ([], {}))
        elif current is None:
            continue
        elif label := re.match(r"(\.L_x_\d+):", line):
            current[1][label.group(1)] = len(current[0])
        elif instruction := INSTRUCTION.match(line):
            predicate, name, operands = instruction.groups()
            current[0].append((name, operands, predicate is not None))
    return found


def target_of(instruction, labels):
    """The number of the instruction to which a branch jumps, or None."""
    found = instruction[0].startswith("BRA") and re.search(r"`\((\.L_x_\d+)\)", instruction[1])
    return labels.get(found.group(1)) if found else None


def blocks_of(instructions, labels):
    """The basic blocks: [(first instruction, the one after the last, numbers of the blocks that may be next)]."""
    ends = {number + 1 for number, (name, *_) in enumerate(instructions) if name.split(".")[0] in ("BRA", "EXIT", "RET")}
    begins = sorted({0, *labels.values(), *ends} & set(range(len(instructions))))
    number_of = {begin: number for number, begin in enumerate(begins)}
    blocks = []
    for begin, end in zip(begins, begins[1:] + [len(instructions)]):
        last = instructions[end - 1]
        following = {number_of[target]} if (target := target_of(last, labels)) in number_of else set()
        if (last[2] or last[0].split(".")[0] not in ("BRA", "EXIT", "RET")) and end in number_of:
            following.add(number_of[end])
        blocks.append((begin, end, following))
    return blocks


def loops_of(blocks):
    """[(first block, all blocks)] of the loops that are entered by their first block only."""
    before = [set() for _ in blocks]
    for number, (*_, following) in enumerate(blocks):
        for other in following:
            before[other].add(number)
    # bit sets of the blocks that each way to a block passes
    everything = (1 << len(blocks)) - 1
    dominators = [1] + [everything] * (len(blocks) - 1)
    changed = True
    while changed:
        changed = False
        for number in range(1, len(blocks)):
            common = everything
            for other in before[number]:
                common &= dominators[other]
            if (new := common | 1 << number) != dominators[number]:
                dominators[number], changed = new, True
    bodies = {}
    for number, (*_, following) in enumerate(blocks):
        for first in following:
            if not dominators[number] >> first & 1 or dominators[number] == everything:
                continue
            body, waiting = bodies.setdefault(first, {first}), [number]
            while waiting:
                if (block := waiting.pop()) not in body:
                    body.add(block)
                    waiting += before[block]
    return list(bodies.items())


def longest_way(first, body, blocks, instructions):
    """The names of the instructions of the longest way through a loop that calls no subroutine, in order."""
    def calls(block):
        return any(name.startswith("CALL") for name, *_ in instructions[slice(*blocks[block][:2])])
    # depth first, without recursion: a block's way is known after those of the blocks that follow it
    ways, path, waiting = {}, set(), [first]
    while waiting:
        block = waiting[-1]
        if block in ways:
            waiting.pop()
            continue
        following = [other for other in blocks[block][2] if other in body and other != first and not calls(other)]
        path.add(block)
        unknown = [other for other in following if other not in ways and other not in path]
        if unknown:
            waiting += unknown
            continue
        waiting.pop()
        path.discard(block)
        length = blocks[block][1] - blocks[block][0]
        more, after = max(((*ways[other][:1], other) for other in following if other in ways), default=(0, None))
        ways[block] = (length + more, after)
    names, block = [], first
    while block is not None:
        names += [name for name, *_ in instructions[slice(*blocks[block][:2])]]
        block = ways[block][1]
    return names


class Way(NamedTuple):
    """What is counted of a way through a loop."""
    instructions: int
    loaded: int  # bytes, by loads of 8 and 16 bytes
    narrow_loads: int  # of less than 16 bytes
    before_products: int  # loads of 16 bytes before the first product of floats
    before_stores: int  # and before the first store

    def __repr__(self):
        return " ".join(f"{name} {number}" for name, number in self._asdict().items())

    @staticmethod
    def of(names):
        widths = [16 if ".128" in name else 8 if ".64" in name else 0 for name in names if is_load(name)]

        def wide_before(plain):
            first = next((number for number, name in enumerate(names) if name.split(".")[0] in plain), len(names))
            return sum(is_load(name) and ".128" in name for name in names[:first])
        return Way(len(names), sum(widths), sum(width < 16 for width in widths), wide_before(("FMUL", "FFMA")),
                   wide_before(("STG",)))


def is_load(name):
    return name.split(".")[0] == "LDG"


def wide_loops_of(instructions, labels):
    """The longest way of each loop with loads of 16 bytes, except for loops that contain such a loop."""
    blocks = blocks_of(instructions, labels)
    ways = {first: (body, longest_way(first, body, blocks, instructions)) for first, body in loops_of(blocks)}
    wide = {first: way for first, way in ways.items() if any(is_load(name) and ".128" in name for name in way[1])}
    return [Way.of(names) for first, (body, names) in wide.items()
            if not any(other in body for other in wide if other != first)]


def counts_of(instructions, labels):
    """How often each of COUNTED is in a loop: between a jump back and the place to which it jumps; narrow stores and
    arithmetic in double; and wide_loops_of."""
    inside = set()
    for number, instruction in enumerate(instructions):
        target = target_of(instruction, labels)
        if target is not None and target <= number:
            inside.update(range(target, number + 1))
    names = Counter()
    for number in inside:
        name = instructions[number][0]
        plain = name.split(".")[0]
        names["LDG.128" if plain == "LDG" and ".128" in name else plain] += 1
    narrow = sum(name.split(".")[0] == "STG" and not re.search(r"\.(64|128)\b", name) for name, *_ in instructions)
    double = sum(bool(re.match(r"D(ADD|MUL|FMA)\b|MUFU\.\w+64H", name)) for name, *_ in instructions)
    loops = wide_loops_of(instructions, labels) if names["LDG.128"] else []
    return {name: names[name] for name in COUNTED} | {"narrow STG": narrow, "double": double, "wide loops": loops}


def counts_of_object(path, cuobjdump, nvdisasm):
    """{(kernel, architecture): counts_of} of a file."""
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        subprocess.run([cuobjdump, "-xelf", "all", path.resolve()], cwd=temporary, check=True, capture_output=True)
        for cubin in sorted(Path(temporary).iterdir()):
            arch = re.search(r"\.(sm_\w+)\.cubin$", cubin.name).group(1)
            code = code_of(subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout)
            for name, (instructions, labels) in zip(kernel_resources.demangled(list(code)), code.values()):
                found[name, arch] = counts_of(instructions, labels)
    return found


def counts(folder, cuobjdump, nvdisasm):
    """{(kernel, architecture): counts_of} of a build."""
    objects = sorted(path for name in ("coeus_cuda", "coeus_cuda_8_bit", "coeus_cuda_sm_90a")
                     for path in folder.glob(f"CMakeFiles/{name}.dir/**/*.cu.o"))
    if not objects:
        raise kernel_resources.Refused(f"{folder} has no CUDA kernels: it is not a build made by `make cuda`")
    found = {}
    with ProcessPoolExecutor() as processes:
        for of_object in processes.map(partial(counts_of_object, cuobjdump=cuobjdump, nvdisasm=nvdisasm), objects):
            found |= of_object
    return found


def parsed_limits(text):
    """[(kind, pattern of kernels, value)] of the file."""
    found = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            kind, rest = line.split(": ", 1)
            pattern, _, value = rest.partition(" | ")
            found.append((kind, re.compile(pattern), value))
    return found


def per_element(loops, load_bytes):
    """The instructions for each element in the longest of these loops, which load so many bytes for an element."""
    longest = max(loops)
    return longest.instructions * load_bytes / longest.loaded


def broken(limits, found):
    """What breaks the limits, as text."""
    said = []
    for kind, pattern, _ in limits:
        if not any(pattern.fullmatch(kernel) for kernel, _ in found):
            said.append(f"\"{kind}: {pattern.pattern}\" is no kernel's name")
    for (kernel, arch), count in sorted(found.items()):
        for_kernel = [(kind, value) for kind, pattern, value in limits if pattern.fullmatch(kernel)]
        kinds = dict(for_kernel)
        local = count["LDL"] + count["STL"]
        if local and "local" not in kinds:
            said.append(f"{kernel} on {arch}: {local} accesses of local memory in a loop; make it fit into registers, or "
                        "write a line \"local: KERNEL | reason\"")
        if products := count["HMMA"] + 2 * count["QMMA"]:
            ratio = count["LDSM"] / products
            if "LDSM per HMMA" not in kinds:
                said.append(f"{kernel} on {arch}: it has products of tensor cores, but no line \"LDSM per HMMA: ...\"")
            elif ratio > float(kinds["LDSM per HMMA"]):
                said.append(f"{kernel} on {arch}: {count['LDSM']} LDSM for {products} HMMA, {ratio:.3f} for each, "
                            f"more than {kinds['LDSM per HMMA']}")
        for kind, name in (("unfused", "FADD"), ("narrow stores", "narrow STG"), ("double", "double")):
            if kind in kinds and count[name] > int(kinds[kind]):
                said.append(f"{kernel} on {arch}: {count[name]} {name}, more than {kinds[kind]}")
        if "wide" in kinds and not count["LDG.128"]:
            said.append(f"{kernel} on {arch}: no loop loads 16 bytes at a time (LDG.128)")
        if per := kinds.get("instructions per element"):
            most, load_bytes = (float(number) for number in per.split(" | "))
            if not count["wide loops"]:
                said.append(f"{kernel} on {arch}: no loop loads 16 bytes at a time (LDG.128), so that its instructions "
                            "for each element cannot be counted")
            elif (number := per_element(count["wide loops"], load_bytes)) > most:
                said.append(f"{kernel} on {arch}: {number:.1f} instructions for each element, more than {most:g}")
        loop = max(count["wide loops"], default=Way(0, 0, 0, 0, 0))
        for kind, early, what in (("loads before products", loop.before_products, "product of floats"),
                                  ("loads before stores", loop.before_stores, "store")):
            if kind in kinds and early < int(kinds[kind]):
                said.append(f"{kernel} on {arch}: {early} loads of 16 bytes before the first {what} of the longest loop, "
                            f"fewer than {kinds[kind]}")
        if "narrow loads" in kinds and loop.narrow_loads > int(kinds["narrow loads"]):
            said.append(f"{kernel} on {arch}: {loop.narrow_loads} loads of less than 16 bytes in the longest loop, more than "
                        f"{kinds['narrow loads']}")
    return said


def main(arguments):
    folder = Path(arguments[0]) if arguments else None
    if not folder or arguments[1:] not in ([], ["--list"]):
        print(__doc__, file=sys.stderr)
        return 2
    tools = [tool(name, folder) for name in ("cuobjdump", "nvdisasm")]
    if None in tools:
        print("skipped: the instructions of kernels were not counted: there is no cuobjdump or no nvdisasm (packages "
              "nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm)")
        return kernel_resources.SKIPPED
    try:
        found = counts(folder, *tools)
    except kernel_resources.Refused as why:
        print(f"kernel_instructions.py: {why}", file=sys.stderr)
        return 1
    if arguments[1:]:
        for (kernel, arch), count in sorted(found.items()):
            print(f"{kernel} {arch} " + " ".join(f"{name} {number}" for name, number in count.items() if number))
        return 0
    said = broken(parsed_limits(LIMITS.read_text()), found)
    for line in said:
        print(f"kernel_instructions.py: {line}", file=sys.stderr)
    if not said:
        print(f"the instructions of {len(found)} kernels are within the limits of "
              f"{LIMITS.relative_to(kernel_resources.ROOT)}")
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
