#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Logs the lines of a run's metrics.jsonl to Weights & Biases as they are written: to_wandb.py FOLDER [PROJECT]"""
import json, os, pathlib, sys
import wandb
from new_lines import metrics_of, new_lines

folder = pathlib.Path(sys.argv[1]).resolve()
memory, kept = folder / "wandb.json", folder / "wandb.jsonl"
# a later start of this script continues the same run of W&B, after the last line that it logged
state = json.loads(memory.read_text()) if memory.exists() else {"id": os.urandom(6).hex()}
memory.write_text(json.dumps(state))
project = sys.argv[2] if len(sys.argv) > 2 else "coeus"
run = wandb.init(project=project, id=state["id"], name=folder.name, resume="allow")
run.define_metric("*", step_metric="step")
for values in new_lines(folder, kept): run.log(metrics_of(values))
