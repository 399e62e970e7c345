#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Logs the lines of a run's metrics.jsonl to MLflow as they are written: to_mlflow.py FOLDER [EXPERIMENT]"""
import json, os, pathlib, sys, time
import mlflow

folder = pathlib.Path(sys.argv[1]).resolve()
path, memory, part = (folder / name for name in ("metrics.jsonl", "mlflow.json", "mlflow.json.part"))
# a later start of this script continues the same run of MLflow, after the last line that it logged
state = json.loads(memory.read_text()) if memory.exists() else {"id": None, "time": 0}
mlflow.set_experiment(sys.argv[2] if len(sys.argv) > 2 else "coeus")
state["id"] = mlflow.start_run(run_id=state["id"], run_name=None if state["id"] else folder.name).info.run_id
memory.write_text(json.dumps(state))
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
            mlflow.log_metrics(numbers, step=values["step"])
            state["time"] = when
            part.write_text(json.dumps(state))
            part.replace(memory)
        continue
    # a run that goes back replaces the file by one without the later steps; those computed again have later times
    if file and path.exists() and os.stat(path).st_ino != os.fstat(file.fileno()).st_ino: file = None
    elif file: file.seek(place)  # the line may be written in part
    time.sleep(1)
