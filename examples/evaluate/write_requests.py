#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tasks of lm-evaluation-harness as a file for `coeus evaluate`:

    python3 write_requests.py hellaswag arc_easy --num_fewshot 5 > tasks.jsonl
"""
import argparse
import itertools
import json

from lm_eval.tasks import TaskManager, get_task_dict


def tasks_in(found):
    """The tasks of a dictionary, and those of its groups."""
    for name, task in found.items():
        if isinstance(task, dict): yield from tasks_in(task)
        else: yield name, task


def line_of(name, task, requests):
    """The line of one document, from its requests in the order of the choices."""
    pairs, kind = [request.arguments for request in requests], requests[0].request_type
    if kind == "loglikelihood_rolling": return {"task": name, "text": pairs[0][0]}
    if kind != "loglikelihood": raise SystemExit(f"{name}: its answers are generated texts; use lm_eval with an exported model")
    if task.OUTPUT_TYPE != "multiple_choice": return {"task": name, "context": pairs[0][0], "continuation": pairs[0][1]}
    choices, delimiter = task.doc_to_choice(requests[0].doc), task.config.target_delimiter
    gold = (task.doc_to_text if task.multiple_input else task.doc_to_target)(requests[0].doc)
    if isinstance(gold, list): raise SystemExit(f"{name}: several of its choices are right, which coeus evaluate has no form for")
    line = {"task": name, "gold": choices.index(gold) if isinstance(gold, str) else int(gold), "delimiter": delimiter}
    pairs = [(context, text.removeprefix(delimiter)) for context, text in pairs[:len(choices)]]
    if task.multiple_input: return line | {"context_options": [context for context, _ in pairs], "continuation": pairs[0][1]}
    return line | {"query": pairs[0][0], "choices": [text for _, text in pairs]}


parser = argparse.ArgumentParser(description="Writes tasks of lm-evaluation-harness as a file for coeus evaluate.")
parser.add_argument("tasks", nargs="+")
parser.add_argument("--num_fewshot", type=int)
parser.add_argument("--limit", type=int)
parser.add_argument("--include_path", help="a folder with tasks of your own")
options = parser.parse_args()
for name, task in tasks_in(get_task_dict(options.tasks, TaskManager(include_path=options.include_path))):
    if options.num_fewshot is not None: task.set_config(key="num_fewshot", value=options.num_fewshot)
    task.build_all_requests(limit=options.limit, rank=0, world_size=1)
    for _, requests in itertools.groupby(task.instances, key=lambda request: request.doc_id):
        print(json.dumps(line_of(name, task, sorted(requests, key=lambda request: request.idx)), ensure_ascii=False))
