#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Logs the lines of a run's metrics.jsonl to Weights & Biases as they are written: to_wandb.py FOLDER [PROJECT]"""
import json, os, pathlib, sys, time
import wandb

folder = pathlib.Path(sys.argv[1]).resolve()
path, memory, part = (folder / name for name in ("metrics.jsonl", "wandb.json", "wandb.json.part"))
# a later start of this script continues the same run of W&B, after the last line that it logged
state = json.loads(memory.read_text()) if memory.exists() else {"id": os.urandom(6).hex(), "time": 0}
memory.write_text(json.dumps(state))
project = sys.argv[2] if len(sys.argv) > 2 else "coeus"
run = wandb.init(project=project, id=state["id"], name=folder.name, resume="allow")
run.define_metric("*", step_metric="step")
file = None
while True:
    if file is None and path.exists(): file = open(path)
    place, line = (file.tell(), file.readline()) if file else (0, "")
    if line.endswith("\n"):
        values = json.loads(line)
        when = values.get("time", 0)  # versions before 0.3 wrote none
        if when > state["time"] or when == state["time"] == 0:
            group = f"tasks/{values['task']}/" if "task" in values else ""
            numbers = {key if key in ("step", "time", "run_s") else group + key: value
                       for key, value in values.items() if isinstance(value, (int, float))}
            run.log(numbers)
            state["time"] = when
            part.write_text(json.dumps(state))
            part.replace(memory)
        continue
    # a run that goes back replaces the file by one without the later steps; those computed again have later times
    if file and path.exists() and os.stat(path).st_ino != os.fstat(file.fileno()).st_ino: file = None
    elif file: file.seek(place)  # the line may be written in part
    time.sleep(1)
