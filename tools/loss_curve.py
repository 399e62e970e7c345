#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the loss and the validation loss of a run over its steps as an SVG picture.

    tools/loss_curve.py outputs/llama3_debug/metrics.jsonl loss.svg [--title TEXT]

The picture has no background and middle tones only, so it reads on light and on dark pages.
"""
import argparse
import json
import math
import sys
from html import escape

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 20, 40, 48
INK, GRID, LOSS, VALIDATION = "#808890", "#80889040", "#2f81f7", "#e8590c"


def read(path):
    """{"loss": [(step, value)], "validation_loss": ...}; where a resumed run repeats a step, the later line counts."""
    series = {"loss": {}, "validation_loss": {}}
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                sys.exit(f"{path}:{number}: not a JSON object; a run that was killed may leave half a last line")
            for name, points in series.items():
                value = record.get(name)
                if isinstance(value, (int, float)) and math.isfinite(value):
                    points[record["step"]] = value
    return {name: sorted(points.items()) for name, points in series.items()}


def ticks(low, high, wanted=6):
    """Round values that cover [low, high] from inside, about `wanted` of them."""
    if high <= low:
        return [low]
    rough = (high - low) / wanted
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10) if unit * m >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def smooth(points, most=240):
    """At most `most` points: the mean of each stretch of steps."""
    width = max(1, math.ceil(len(points) / most))
    groups = [points[i:i + width] for i in range(0, len(points), width)]
    return [(sum(s for s, _ in g) / len(g), sum(v for _, v in g) / len(g)) for g in groups]


def draw(series, title):
    """The SVG text."""
    points = [p for part in series.values() for p in part]
    if not points:
        sys.exit("no line has a finite loss")
    last = max(1, max(s for s, _ in points))
    low, high = min(v for _, v in points), max(v for _, v in points)
    margin = 0.05 * (high - low) or 0.5
    low, high = low - margin, high + margin

    def x(step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / last

    def y(value):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
           f'font-family="system-ui, sans-serif" font-size="13" fill="{INK}" role="img">',
           f"<title>{escape(title)}</title>",
           f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>']
    for value in ticks(low, high):
        out.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    for step in ticks(0, last, 8):
        out.append(f'<path d="M{x(step):.1f} {HEIGHT - BOTTOM}v5" stroke="{INK}"/>')
        out.append(f'<text x="{x(step):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{step:,.6g}</text>')
    out.append(f'<path d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}" stroke="{INK}"/>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">step</text>')

    legend = WIDTH - RIGHT - 8
    for name, colour, label in (("validation_loss", VALIDATION, "validation"), ("loss", LOSS, "training")):
        part = smooth(series[name])
        if not part:
            continue
        line = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in part)
        measured_rarely = name == "validation_loss"  # dots are what was measured, the line between them is a guess
        dashes = ' stroke-dasharray="3 4"' if measured_rarely else ""
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="{1 if dashes else 2}" '
                   f'stroke-linejoin="round"{dashes}/>')
        if measured_rarely:
            out += [f'<circle cx="{x(s):.1f}" cy="{y(v):.1f}" r="3.5" fill="{colour}"/>' for s, v in part]
        text = f"{label} {series[name][-1][1]:.2f}"
        out.append(f'<text x="{legend}" y="22" text-anchor="end" fill="{colour}">{text}</text>')
        legend -= 7 * len(text) + 16
    return "\n".join(out) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("metrics", help="metrics.jsonl of a run")
    parser.add_argument("picture", help="the SVG file to write")
    parser.add_argument("--title", default="loss (nats per token)")
    given = parser.parse_args()
    text = draw(read(given.metrics), given.title)
    with open(given.picture, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
