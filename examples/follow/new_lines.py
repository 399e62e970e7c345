# SPDX-License-Identifier: Apache-2.0
"""The lines of a run's metrics.jsonl as they are written, for the scripts beside this file."""
import itertools, json, os, pathlib, time


def new_lines(folder, kept):
    """Yields each line once, as a dictionary; it counts as taken when the next one is asked for. The file `kept` has
    the taken lines that metrics.jsonl still has, so another start continues after them."""
    path, part, file = folder / "metrics.jsonl", pathlib.Path(f"{kept}.part"), None
    while True:
        if file is None and path.exists():
            # a run that goes back replaces the file by one without some of the last lines
            file, before = open(path, "rb"), iter(kept.read_bytes().splitlines(True) if kept.exists() else [])
            same = list(itertools.takewhile(lambda line: line.endswith(b"\n") and line in before, file))
            file.seek(sum(map(len, same)))
            part.write_bytes(b"".join(same))
            part.replace(kept)
        line = file.readline() if file else b""
        if line.endswith(b"\n"):
            yield json.loads(line)
            with open(kept, "ab") as taken: taken.write(line)
        elif file and path.exists() and os.stat(path).st_ino != os.fstat(file.fileno()).st_ino:
            file.close()
            file = None
        else:
            if file: file.seek(-len(line), os.SEEK_CUR)  # the line may be written in part
            time.sleep(1)


def metrics_of(values):
    """The numbers of a line; those of a task have its name."""
    group = f"tasks/{values['task']}/" if "task" in values else ""
    return {key if key in ("step", "time", "run_s") else group + key: value for key, value in values.items()
            if isinstance(value, (int, float))}
