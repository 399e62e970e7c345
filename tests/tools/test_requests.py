# SPDX-License-Identifier: Apache-2.0
"""examples/evaluate/write_requests.py writes lm-evaluation-harness's tasks in the form of `coeus evaluate`. The tasks here
have their documents in files, so that nothing is downloaded. Skipped without lm_eval."""
import importlib.util
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TASK = """task: z_{name}
dataset_path: json
dataset_kwargs:
  data_files: {{test: {folder}/{name}.jsonl}}
test_split: test
output_type: {output_type}
doc_to_text: {text}
doc_to_target: {target}
{more}
metric_list:
  - {{metric: {metric}}}
"""
# name: (document, values of TASK, the line for it)
TASKS = {
    "choice": ({"q": "Sky is ", "c": ["blue", "two words "], "g": 1},
               dict(output_type="multiple_choice", text="q", target="g", more="doc_to_choice: c", metric="acc"),
               {"gold": 1, "delimiter": " ", "query": "Sky is ", "choices": ["blue", "two words "]}),
    "schema": ({"o": ["Ann", "Bob "], "e": "left.", "g": 0},
               dict(output_type="multiple_choice", text="g", target="e", more="doc_to_choice: o", metric="acc"),
               {"gold": 0, "delimiter": " ", "context_options": ["Ann", "Bob "], "continuation": "left."}),
    "last": ({"c": "Once upon", "e": " a time"},
             dict(output_type="loglikelihood", text="c", target="e", more="target_delimiter: ''", metric="perplexity"),
             {"context": "Once upon", "continuation": " a time"}),
    "text": ({"t": "A text."},
             dict(output_type="loglikelihood_rolling", text="''", target="t", more="", metric="word_perplexity"),
             {"text": "A text."}),
}


@unittest.skipUnless(importlib.util.find_spec("lm_eval"), "there is no lm_eval")
class Requests(unittest.TestCase):
    def test_each_kind_of_task(self):
        with tempfile.TemporaryDirectory(prefix="coeus-requests-") as folder:
            for name, (document, values, _) in TASKS.items():
                Path(folder, f"{name}.jsonl").write_text(json.dumps(document) + "\n")
                Path(folder, f"{name}.yaml").write_text(TASK.format(name=name, folder=folder, **values))
            script = ROOT / "examples/evaluate/write_requests.py"
            done = subprocess.run([sys.executable, script, *(f"z_{name}" for name in TASKS), "--include_path", folder],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        lines = {line["task"]: line for line in map(json.loads, done.stdout.splitlines())}
        self.assertEqual(lines, {f"z_{name}": {"task": f"z_{name}"} | line for name, (_, _, line) in TASKS.items()})


if __name__ == "__main__":
    unittest.main()
