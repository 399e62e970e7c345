#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the two pictures of doc/design.md: doc/folders.svg from cmake/libraries.cmake, and doc/step.svg, whose boxes
name classes or functions and their files. `--check` writes nothing; it reports pictures that are out of date, folders
that have no description here, names that are not in their file, and pictures of doc/ that draw beyond their size or
leave a part empty. `--run COEUS` draws the pictures that show runs instead: doc/memory_snapshot.svg and doc/report.png
(for which it needs Chromium)."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import sources

# folder -> (kind, contents); one line for each coeus_library of cmake/libraries.cmake
FOLDERS = {
    "apps": ("run", "sub-commands"),
    "info": ("run", "what files and folders are"),
    "train": ("run", "one run: start, steps, saving, resuming"),
    "session": ("run", "a rank made ready to run"),
    "setup": ("run", "options of a run"),
    "generate": ("run", "text from a model"),
    "evaluate": ("run", "tasks, scores, metrics"),
    "predict": ("model", "machine files, time of a step"),
    "report": ("around", "pages, tables"),
    "metrics": ("around", "what a run records"),
    "watchdog": ("around", "hangs, crashes"),
    "observe": ("around", "time, memory"),
    "guards": ("around", "loss spikes"),
    "pretrained": ("around", "other weights"),
    "job": ("around", "end of the job"),
    "deck": ("files", "decks of this program"),
    "config": ("files", "the deck and its options"),
    "engine": ("model", "a model with its memory"),
    "io": ("files", "checkpoints"),
    "hub": ("files", "Hugging Face folders"),
    "data": ("files", "tokenizers, token files"),
    "optim": ("model", "optimizers, schedule"),
    "plan": ("model", "memory, recomputation"),
    "pipeline": ("model", "stages, schedules, executor"),
    "models": ("model", "families, the decoder"),
    "layers": ("model", "linear, attention, block"),
    "hdf5": ("files", "HDF5"),
    "file": ("files", "JSON, TOML, tensors"),
    "deck_names": ("files", "what decks can name"),
    "state": ("model", "parameters, FSDP"),
    "comm": ("machine", "MPI, the mesh"),
    "kernels": ("machine", "CPU, CUDA"),
    "device": ("machine", "memory, tensors, queues"),
    "base": ("machine", "errors, log, random numbers"),
}
# light fills with dark text, and grey lines: readable on white and on dark backgrounds
FILLS = {"run": "#f3c78b", "around": "#e9b6b6", "files": "#b9d7a8", "model": "#a9c8ea", "machine": "#c9c3dd"}
LINE, INK = "#8b949e", "#1f2328"
FONT = "font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\""


class Svg:
    def __init__(self, width, height, title):
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                      f'viewBox="0 0 {width} {height}" {FONT} text-anchor="middle">', f"<title>{escape(title)}</title>",
                      '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
                      f'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{LINE}"/></marker></defs>']

    def text(self, x, y, text, size, ink=INK, more=""):
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{ink}"{more}>{escape(text)}</text>')

    def box(self, x, y, width, height, fill, lines):
        """Draws a box with lines of text in its middle. Each of `lines` is (text, size, weight)."""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" fill="{fill}" '
                          f'stroke="{LINE}"/>')
        at = y + height / 2 - sum(size * 1.25 for _, size, _ in lines) / 2
        for text, size, weight in lines:
            at += size * 1.25
            self.text(x + width / 2, at - size * 0.3, text, size, more=f' font-weight="{weight}"' if weight else "")

    def line(self, path, tip=False, more=""):
        end = ' marker-end="url(#tip)"' if tip else ""
        self.parts.append(f'<path d="{path}" fill="none" stroke="{LINE}" stroke-width="1.4"{end}{more}/>')

    def done(self):
        return "\n".join(self.parts + ["</svg>", ""])


def uses_of(allowed):
    """Returns folder -> the folders that it uses, without those that another folder among these uses."""
    below = {name: folders - {name} for name, folders in allowed.items()}
    return {name: sorted(used for used in folders if not any(used in below[other] for other in folders))
            for name, folders in below.items()}


def rows_of(uses):
    """Returns the folders by rows, the lowest row first. Each folder is as high as possible, but below its users."""
    height = {}

    def height_of(name):
        if name not in height:
            height[name] = 1 + max([height_of(used) for used in uses[name]], default=-1)
        return height[name]

    for name in uses: height_of(name)
    for name in sorted(uses, key=height.get, reverse=True):
        users = [height[user] for user in uses if name in uses[user]]
        if users: height[name] = min(users) - 1
    rows = [[] for _ in range(max(height.values()) + 1)]
    for name in FOLDERS: rows[height[name]].append(name)
    return rows


def draw_folders(allowed):
    uses = uses_of(allowed)
    rows = rows_of(uses)
    width, row_height, box_height, gap = 900, 66, 40, 14
    # a line across several rows has its own place in each of them, like a box without width
    level = {name: i for i, row in enumerate(rows) for name in row}
    chains = []
    places = [list(row) for row in rows]
    for name in uses:
        for used in uses[name]:
            chain = [name]
            for i in range(level[name] - 1, level[used], -1):
                chain.append((name, used, i))
                places[i].append(chain[-1])
            chains.append(chain + [used])
    box_width = {name: max(len(name) * 8, len(FOLDERS[name][1]) * 6.1) + 20 for name in uses}
    x = {}

    def spread(row):
        """Places the boxes of a row next to each other, near their wanted positions."""
        half = [box_width.get(place, 4) / 2 for place in row]
        right, left = [], []
        for i, place in enumerate(row):
            right.append(max(x[place], right[-1] + half[i - 1] + half[i] + gap if right else half[i]))
        for i in range(len(row) - 1, -1, -1):
            left.append(min(x[row[i]], left[-1] - half[i + 1] - half[i] - gap if left else width - half[i]))
        at = [(r + l) / 2 for r, l in zip(right, reversed(left))]
        beyond = max(0, half[0] - at[0]) - max(0, at[-1] + half[-1] - width)
        x.update(zip(row, (place + beyond for place in at)))

    neighbours = {}
    for chain in chains:
        for upper, lower in zip(chain, chain[1:]):
            neighbours.setdefault(upper, ([], []))[1].append(lower)
            neighbours.setdefault(lower, ([], []))[0].append(upper)
    for row in places:
        for i, place in enumerate(row): x[place] = width * (i + 1) / (len(row) + 1)

    def pull(place, near):
        """Moves a place towards its neighbours: a box also towards the middle, a line so that it becomes straight."""
        pulls = [x[n] for n in near] + ([width / 2] if place in uses else [x[n] for n in near if n not in uses] * 3)
        x[place] = sum(pulls) / len(pulls)

    for turn in range(24):
        side = turn % 2
        for row in places if side else reversed(places):
            for place in row: pull(place, neighbours[place][side])
            row.sort(key=lambda place: x[place])
            spread(row)
    for _ in range(60):
        for row in places:
            for place in row: pull(place, sum(neighbours[place], []))
            spread(row)
    passed = {place: chain[1:-1] for chain in chains for place in chain[1:-1]}
    for _ in range(60):
        for row in places:
            for place in row:
                if place in passed: x[place] = sum(x[n] for n in passed[place]) / len(passed[place])
            spread(row)

    # the widest row may need more than this width
    margin = 6
    first = min(min(x[name] - box_width[name] / 2 for name in uses), min(x.values())) - margin
    x = {place: at - first for place, at in x.items()}
    width = round(max(max(x[name] + box_width[name] / 2 for name in uses), max(x.values())) + margin)
    height = row_height * len(rows) + 4
    picture = Svg(width, height, "The folders of src: each uses those that it is joined to below, and what these use")
    top = {name: height - row_height * (level[name] + 1) + 12 for name in uses}
    for chain in chains:
        at, y = x[chain[0]], top[chain[0]] + box_height
        path = f"M{at:.1f},{y}"
        for place in chain[1:]:
            below = top[place] if place in uses else height - row_height * (place[2] + 1) + 12
            middle = (y + below) / 2
            path += f" C{at:.1f},{middle:.1f} {x[place]:.1f},{middle:.1f} {x[place]:.1f},{below}"
            at, y = x[place], below
            if place not in uses:
                y += box_height
                path += f" L{at:.1f},{y}"
        picture.line(path)
    for name in uses:
        kind, text = FOLDERS[name]
        picture.box(x[name] - box_width[name] / 2, top[name], box_width[name], box_height, FILLS[kind],
                    [(name, 13, "bold"), (text, 10.5, "")])
    return picture.done()


# (row, lane, kind, action, [(name, its file in src)])
STEP = [
    (0, 0, "files", "a thread reads the next samples", [("BatchLoader", "data/batch_loader.cpp")]),
    (0, 1, "run", "the samples of this step; all ranks count labels", [("train_step", "train/trainer.cpp")]),
    (1, 1, "model", "numbers of the step to the device; gradients = 0", [("compute_gradients", "engine/engine.cpp")]),
    (2, 1, "model", "this rank's part, cut into micro-batches", [("BatchPart", "models/token_batches.cpp")]),
    (3, 1, "model", "this rank's actions, by the pipeline schedule", [("Executor", "pipeline/executor.cpp")]),
    (4, 1, "model", "embedding, blocks, head; activations are kept", [("Stage::forward", "pipeline/stage.cpp")]),
    (4, 0, "machine", "all-gather of the next weights", [("Gathered", "state/fsdp.cpp")]),
    (4, 2, "machine", "activations to the next stage", [("PointToPoint", "comm/point_to_point.cpp")]),
    (5, 1, "model", "the same backwards; weight gradients", [("Stage::backward", "pipeline/stage.cpp")]),
    (5, 0, "machine", "reduce-scatter of gradients", [("Gathered", "state/fsdp.cpp")]),
    (5, 2, "machine", "gradients to the stage before", [("PointToPoint", "comm/point_to_point.cpp")]),
    (6, 1, "model", "last sums over ranks: gradients, loss", [("sum_over_ranks", "engine/engine.cpp")]),
    (7, 1, "model", "gradient norm over all owners; clip; refuse a step", [("measure_norm", "optim/grad_norm.cpp")]),
    (8, 1, "model", "each group's optimizer updates owned rows", [("ParamGroups::update", "optim/param_groups.cpp")]),
    (9, 1, "run", "log and metrics; validation; guards; checkpoint", [("Trainer::run", "train/trainer.cpp")]),
    (9, 2, "files", "saved while training continues", [("AsyncCheckpoint", "io/async_checkpoint.cpp")]),
]


def draw_step():
    lanes = [(16, 234), (285, 350), (670, 224)]  # left edge and width
    row_height, box_height, above = 62, 40, 58
    rows = 1 + max(row for row, *_ in STEP)
    picture = Svg(900, above + row_height * rows + 8, "The life of a training step")
    top = [above + row_height * row + (10 if row >= 2 else 0) + (10 if row >= 6 else 0) - 10 for row in range(rows)]
    for lane, text in enumerate(["at the same time", "one step", "at the same time"]):
        picture.text(lanes[lane][0] + lanes[lane][1] / 2, 16, text, 12, LINE, ' font-style="italic"')
    x, width = lanes[1]
    picture.parts.append(f'<rect x="{x - 20}" y="{top[2] - 12}" width="{width + 30}" '
                         f'height="{top[5] + box_height - top[2] + 22}" rx="8" fill="none" stroke="{LINE}" '
                         'stroke-dasharray="6 4"/>')
    picture.text(lanes[0][0] + lanes[0][1], top[2] + 4, "for each local batch", 11.5, LINE,
                 ' font-style="italic" text-anchor="end"')
    picture.text(lanes[0][0] + lanes[0][1], top[2] + 20, "(gradient accumulation)", 11.5, LINE,
                 ' font-style="italic" text-anchor="end"')
    middle = x + width / 2
    for row in range(1, rows):
        picture.line(f"M{middle},{top[row - 1] + box_height} L{middle},{top[row]}", tip=True)
    for row, lane, *_ in STEP:
        if lane == 1: continue
        y = top[row] + box_height / 2
        left, right = (lanes[0][0] + lanes[0][1], x) if lane == 0 else (x + width, lanes[2][0])
        if (row, lane) == (5, 0): left, right = right, left  # out of the step
        picture.line(f"M{left},{y} L{right},{y}", tip=True)
    # back to the first row, around the left lane
    y, edge = top[rows - 1] + box_height / 2, 4
    picture.line(f"M{x},{y} L{edge + 8},{y} Q{edge},{y} {edge},{y - 8} L{edge},34 Q{edge},26 {edge + 8},26 "
                 f"L{middle - 8},26 Q{middle},26 {middle},34 L{middle},{top[0]}", True, ' stroke-dasharray="2 3"')
    picture.text(lanes[0][0] + lanes[0][1] / 2, y - 8, "the next step", 11.5, LINE, ' font-style="italic"')
    for row, lane, kind, text, names in STEP:
        left, wide = lanes[lane]
        label = ", ".join(f"{name} in {file}" for name, file in names)
        picture.box(left, top[row], wide, box_height, FILLS[kind],
                    [(text, 11, "bold"), (label, 9.5, "")])
    return picture.done()


SHIFT = re.compile(r"(translate|scale|rotate)\(([^)]*)\)")
BACK = 0.6  # a shape of this part of the width is a background or an axis
STRIPS = 5
LETTER = 0.56  # width of a letter, of its font's size


class Extent:
    """What an SVG draws: its size, the box of all shapes, and the ranges of x of the shapes that are not as wide as the
    picture. The width of a text is estimated."""

    def __init__(self, text):
        root = ElementTree.fromstring(text)
        size = root.get("viewBox") or f'0 0 {root.get("width")} {root.get("height")}'
        self.left, self.top, self.width, self.height = (float(number) for number in size.split())
        self.points, self.ranges = [], []
        self.font = float((re.search(r"text\{font:(\d+)px", text) or [0, 12])[1])
        for child in root: self.visit(child, (1, 1, 0, 0), root.attrib)

    def add(self, shape, moved):
        """Adds the points of a shape. `moved`: factors and offsets of x and y."""
        shape = [(x * moved[0] + moved[2], y * moved[1] + moved[3]) for x, y in shape]
        if not shape: return
        self.points += shape
        xs = [x for x, _ in shape]
        if max(xs) - min(xs) < BACK * self.width: self.ranges.append((min(xs), max(xs)))

    def visit(self, element, moved, style):
        """Adds an element and its children. Turned ones are left out. `style`: attributes that are inherited."""
        name = element.tag.split("}")[-1]
        if name in ("defs", "style", "title", "clipPath"): return
        for kind, numbers in SHIFT.findall(element.get("transform", "")):
            values = [float(number) for number in re.split(r"[ ,]+", numbers.strip())]
            x, y = (values + values)[:2] if kind == "scale" else (values + [0])[:2]
            if kind == "rotate": return
            if kind == "scale": moved = (moved[0] * x, moved[1] * y, moved[2], moved[3])
            else: moved = (*moved[:2], moved[2] + moved[0] * x, moved[3] + moved[1] * y)
        style = {**style, **{key: element.get(key) for key in ("font-size", "text-anchor") if element.get(key)}}
        names = ("x", "y", "width", "height", "cx", "cy", "r", "x1", "x2", "y1", "y2")
        # "100%" is as large as the picture
        v = {key: float(element.get(key, 0)) if "%" not in element.get(key, "") else 0 for key in names}
        if name == "rect": self.add([(v["x"], v["y"]), (v["x"] + v["width"], v["y"] + v["height"])], moved)
        if name == "line": self.add([(v["x1"], v["y1"]), (v["x2"], v["y2"])], moved)
        if name == "circle": self.add([(v["cx"] + i * v["r"], v["cy"] + i * v["r"]) for i in (-1, 1)], moved)
        if name == "text" and element.get("x"):
            wide = LETTER * float(style.get("font-size", self.font)) * len("".join(element.itertext()).strip())
            begin = v["x"] - {"middle": wide / 2, "end": wide}.get(style.get("text-anchor"), 0)
            self.add([(begin, v["y"]), (begin + wide, v["y"])], moved)
        pairs = element.get("points") or (element.get("d") if not re.search(r"[a-zHVAS]", element.get("d") or "a") else "")
        line = [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+)[ ,]+(-?[\d.]+)", pairs or "")]
        self.add(line, moved)
        if len(line) > 2:  # a curve is where its points are
            for point in line: self.add([point], moved)
        for child in element: self.visit(child, moved, style)

    def box(self):
        xs, ys = zip(*self.points)
        return min(xs), min(ys), max(xs), max(ys)

    def empty_strips(self):
        """The numbers of the vertical strips, of STRIPS from left to right, in which there is no shape."""
        wide = self.width / STRIPS
        edges = [(i + 1, self.left + i * wide, self.left + (i + 1) * wide) for i in range(STRIPS)]
        return [number for number, begin, end in edges if not any(a < end and b >= begin for a, b in self.ranges)]


def flaws(name, text):
    """Returns a finding if a picture draws something outside of its size, or nothing in a part of it."""
    extent = Extent(text)
    if not extent.points: return [f"{name}: draws nothing"]
    box, found = extent.box(), []
    right, bottom = extent.left + extent.width, extent.top + extent.height
    if box[0] < extent.left or box[1] < extent.top or box[2] > right or box[3] > bottom:
        drawn = ", ".join(f"{number:g}" for number in box)
        size = f"{extent.left:g}, {extent.top:g}, {right:g}, {bottom:g}"
        found.append(f"{name}: is cut off: it draws from {drawn}, but its size is {size}")
    if empty := extent.empty_strips():
        found.append(f"{name}: is empty in part {', '.join(map(str, empty))} of {STRIPS} from left to right")
    return found


# a run whose blocks are recomputed in turns, and whose memory fits into a picture
SNAPSHOT = ["--model.name=llama3", "--model.flavor=debugmodel", "--activation_checkpoint.mode=selective",
            "--activation_checkpoint.selective_ac_option=2", "--training.steps=2", "--training.seq_len=256",
            "--training.local_batch_size=4", "--profiling.enable_memory_snapshot", "--profiling.profile_freq=2"]


def draw_runs(coeus):
    """Writes doc/memory_snapshot.svg and doc/report.png from runs of the program `coeus`."""
    doc, chromium = sources.ROOT / "doc", shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium: return ["tools/pictures.py: doc/report.png needs Chromium (Debian's package chromium)"]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "tiny"
        subprocess.run([sources.ROOT / "examples/pretrain_tiny/run.sh", work, coeus], check=True)
        # a second start with another learning rate and more steps, for the report
        deck = sources.ROOT / "examples/pretrain_tiny/tiny.toml"
        start = [coeus, "train", deck, "--training.dataset_path=tokens.h5", "--model.hf_assets_path=tokenizer"]
        # all outputs of the example are in this folder
        subprocess.run([*start, "--training.steps=400", "--metrics.log_freq=2", "--optimizer.lr=1e-3"], cwd=work, check=True)
        report = work / "report.html"
        subprocess.run([coeus, "report", "outputs", "--output", report], cwd=work, check=True, stdout=subprocess.DEVNULL)
        size = ["--window-size=1200,1180", "--force-device-scale-factor=1", "--hide-scrollbars"]
        subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", *size,
                        f"--screenshot={doc / 'report.png'}", report.as_uri()], check=True)
        out = work / "snapshot"
        subprocess.run([*start, *SNAPSHOT, f"--job.dump_folder={out}"], cwd=work, check=True)
        shutil.copy(next(out.glob("memory_snapshot/step-*/rank_0.svg")), doc / "memory_snapshot.svg")
    return flaws("doc/memory_snapshot.svg", (doc / "memory_snapshot.svg").read_text())


def missing():
    """Returns folders without a description, descriptions without a folder, and names that are not in their file."""
    allowed = sources.layers()
    found = [f"tools/pictures.py: {name} of cmake/libraries.cmake has no line in FOLDERS"
             for name in allowed if name not in FOLDERS]
    found += [f"tools/pictures.py: {name} in FOLDERS is not in cmake/libraries.cmake"
              for name in FOLDERS if name not in allowed]
    for *_, names in STEP:
        for name, file in names:
            path = sources.ROOT / "src" / file
            if not path.exists() or not re.search(rf"\b{name}\b", path.read_text()):
                found.append(f"tools/pictures.py: there is no {name} in src/{file}")
    return found


def main():
    if "--run" in sys.argv[1:]:
        return sources.report(draw_runs(os.path.abspath(sys.argv[sys.argv.index("--run") + 1])), "pictures of runs")
    found = missing()
    if not found:
        for name, text in {"folders": draw_folders(sources.layers()), "step": draw_step()}.items():
            path = sources.ROOT / "doc" / f"{name}.svg"
            if "--check" not in sys.argv[1:]:
                path.write_text(text)
            elif not path.exists() or path.read_text() != text:
                found.append(f"doc/{name}.svg is out of date: run tools/pictures.py")
    for path in sorted((sources.ROOT / "doc").glob("*.svg")):
        found += flaws(f"doc/{path.name}", path.read_text())
    return sources.report(found, "the pictures of doc/design.md, and the size of each picture")


if __name__ == "__main__":
    sys.exit(main())
