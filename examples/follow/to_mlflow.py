#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Logs the lines of a run's metrics.jsonl to MLflow as they are written: to_mlflow.py FOLDER [EXPERIMENT]"""
import json, pathlib, sys
import mlflow
from new_lines import metrics_of, new_lines

folder = pathlib.Path(sys.argv[1]).resolve()
memory, kept = folder / "mlflow.json", folder / "mlflow.jsonl"
# a later start of this script continues the same run of MLflow, after the last line that it logged
state = json.loads(memory.read_text()) if memory.exists() else {"id": None}
mlflow.set_experiment(sys.argv[2] if len(sys.argv) > 2 else "coeus")
state["id"] = mlflow.start_run(run_id=state["id"], run_name=None if state["id"] else folder.name).info.run_id
memory.write_text(json.dumps(state))
for values in new_lines(folder, kept): mlflow.log_metrics(metrics_of(values), step=values["step"])
