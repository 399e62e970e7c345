#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tasks of lm-evaluation-harness as a file for `coeus evaluate`:

    python3 requests.py hellaswag arc_easy --num_fewshot 5 > tasks.jsonl
"""
import argparse
import itertools
import json

from lm_eval.tasks import TaskManager, get_task_dict


def line_of(name, task, requests):
    """The line of one document, from its requests in the order of the choices."""
    delimiter = task.config.target_delimiter
    pairs = [request.arguments for request in requests]
    if requests[0].request_type == "loglikelihood_rolling": return {"task": name, "text": pairs[0][0]}
    if requests[0].request_type != "loglikelihood":
        raise SystemExit(f"{name}: its answers are generated texts; export the model and use lm_eval itself")
    if task.OUTPUT_TYPE != "multiple_choice": return {"task": name, "context": pairs[0][0], "continuation": pairs[0][1]}
    choices = task.doc_to_choice(requests[0].doc)
    gold = (task.doc_to_text if task.multiple_input else task.doc_to_target)(requests[0].doc)
    line = {"task": name, "gold": choices.index(gold) if isinstance(gold, str) else gold, "delimiter": delimiter}
    texts = [continuation.removeprefix(delimiter) for _, continuation in pairs[:len(choices)]]
    if task.multiple_input: return line | {"context_options": [c for c, _ in pairs[:len(choices)]], "continuation": texts[0]}
    return line | {"query": pairs[0][0], "choices": texts}


parser = argparse.ArgumentParser(description="Writes tasks of lm-evaluation-harness as a file for coeus evaluate.")
parser.add_argument("tasks", nargs="+")
parser.add_argument("--num_fewshot", type=int)
parser.add_argument("--limit", type=int)
parser.add_argument("--include_path", help="a folder with tasks of your own")
options = parser.parse_args()
for name, task in get_task_dict(options.tasks, TaskManager(include_path=options.include_path)).items():
    if options.num_fewshot is not None: task.set_config(key="num_fewshot", value=options.num_fewshot)
    task.build_all_requests(limit=options.limit, rank=0, world_size=1)
    for _, requests in itertools.groupby(task.instances, key=lambda request: request.doc_id):
        print(json.dumps(line_of(name, task, sorted(requests, key=lambda request: request.idx)), ensure_ascii=False))
