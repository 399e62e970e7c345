# SPDX-License-Identifier: Apache-2.0
"""Draws curves over the steps of runs as an SVG, for the pictures in doc/."""
import json

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 400, 60, 20, 20, 50


def read_curve(folder, field):
    """Returns the steps and values of a field of a run's metrics.jsonl."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line[field]) for line in lines if field in line]


def smoothed(points, count):
    """Returns points whose value is the mean of the last `count` values."""
    return [(step, sum(value for _, value in points[max(0, i - count + 1):i + 1]) / min(i + 1, count))
            for i, (step, _) in enumerate(points)]


def draw(path, curves, colours, title, digits=3):
    """Writes the curves {name: points}, each in its colour. `title`: what the values are. Lines are half a unit apart."""
    values = [value for points in curves.values() for _, value in points]
    low, high = int(min(values) * 2) / 2, int(max(values) * 2 + 1) / 2
    last = max(step for points in curves.values() for step, _ in points)

    def x(step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / last

    def y(value):
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="13">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for i in range(int((high - low) * 2) + 1):
        value = low + i / 2
        parts.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>'
                     f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.1f}</text>')
    for step in range(0, last + 1, 50):
        parts.append(f'<text x="{x(step):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{step}</text>')
    for i, (name, points) in enumerate(curves.items()):
        line = "M" + "L".join(f"{x(step):.1f} {y(value):.1f}" for step, value in points)
        parts.append(f'<path d="{line}" fill="none" stroke="{colours[name]}" stroke-width="2"/>'
                     f'<text x="{WIDTH - RIGHT - 8}" y="{TOP + 24 + 20 * i}" text-anchor="end" fill="{colours[name]}">'
                     f"{name}: {points[-1][1]:.{digits}f}</text>")
    parts.append(f'<text x="{(WIDTH + LEFT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">step</text>'
                 f'<text x="16" y="{HEIGHT / 2}" transform="rotate(-90 16 {HEIGHT / 2})" text-anchor="middle">{title}</text></svg>')
    path.write_text("\n".join(parts) + "\n")
