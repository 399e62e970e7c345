# SPDX-License-Identifier: Apache-2.0
"""The scripts of examples/follow, with modules in the place of wandb and mlflow that only record their calls."""
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORD = '''import json, os, time
pause, time.sleep = time.sleep, lambda seconds: pause(0.01)
def record(*what):
    with open(os.environ["RECORDED"], "a") as log: print(json.dumps(what), file=log, flush=True)
'''
STAND_INS = {
    "wandb": RECORD + '''
class Run:
    def define_metric(self, name, step_metric): record("metric", name, step_metric)
    def log(self, values): record("log", values["step"], values)
def init(project, id, name, resume):
    record("start", id, name, project, resume)
    return Run()
''',
    "mlflow": RECORD + '''
from types import SimpleNamespace
def set_experiment(name): record("experiment", name)
def start_run(run_id, run_name):
    record("start", run_id, run_name)
    return SimpleNamespace(info=SimpleNamespace(run_id=run_id or "made"))
def log_metrics(values, step): record("log", step, values)
'''}


def line(step, when, **more):
    return json.dumps({"step": step, **more, "time": when, "run_s": when - 1000}) + "\n"


def numbers(text):
    """What is logged of a line."""
    values = json.loads(text)
    task, _ = values.pop("task", None), values.pop("event", None)
    return {f"tasks/{task}/acc" if key == "acc" else key: value for key, value in values.items()}


class Followed:
    """A run's folder, and a script that follows it."""

    def __init__(self, kind):
        self.place = tempfile.TemporaryDirectory(prefix="coeus-follow-")
        self.script = ROOT / f"examples/follow/to_{kind}.py"
        self.folder, self.modules, self.log = (Path(self.place.name) / name for name in ("run", "modules", "recorded"))
        for folder in (self.folder, self.modules): folder.mkdir()
        (self.modules / f"{kind}.py").write_text(STAND_INS[kind])
        self.process = None

    def start(self, *arguments):
        settings = os.environ | {"PYTHONPATH": str(self.modules), "RECORDED": str(self.log)}
        self.process = subprocess.Popen([sys.executable, "-B", self.script, self.folder, *arguments], env=settings,
                                        stdout=subprocess.DEVNULL)

    def stop(self):
        if self.process: self.process.kill()
        if self.process: self.process.wait()
        self.process = None

    def close(self):
        self.stop()
        self.place.cleanup()

    def recorded(self, kind):
        calls = [json.loads(text) for text in self.log.read_text().splitlines()] if self.log.exists() else []
        return [call[1:] for call in calls if call[0] == kind]

    def wait_for(self, count):
        """The logged steps, as soon as there are so many."""
        end = time.monotonic() + 60
        while len(self.recorded("log")) < count and time.monotonic() < end and self.process.poll() is None:
            time.sleep(0.02)
        return [step for step, _ in self.recorded("log")]

    def wait_until_kept(self, kind, text):
        """Until the script has noted this line. Between its log and its note it may log a line twice."""
        end, kept = time.monotonic() + 60, self.folder / f"{kind}.jsonl"
        while not kept.exists() or not kept.read_text().endswith(text):
            assert time.monotonic() < end, "the script has not noted the line"
            time.sleep(0.02)

    def append(self, text):
        with open(self.folder / "metrics.jsonl", "a", encoding="utf-8") as file: file.write(text)

    def replace(self, text):
        (self.folder / "part").write_text(text)
        (self.folder / "part").rename(self.folder / "metrics.jsonl")


class Follow(unittest.TestCase):
    def follow(self, kind):
        run = Followed(kind)
        self.addCleanup(run.close)
        run.start()  # before the run has written a line
        run.append(line(1, 1001, loss=8.5, mfu=None) + line(1, 1001.5, validation_loss=8.25) + '{"step": 2, "lo')
        self.assertEqual(run.wait_for(2), [1, 1])
        run.append('ss": 7, "gpu_throttle": "thermal", "time": 1002, "run_s": 2}\n' + line(3, 1003, loss=6))
        self.assertEqual(run.wait_for(4), [1, 1, 2, 3])
        logged = [values for _, values in run.recorded("log")]
        self.assertEqual(logged[0], {"step": 1, "loss": 8.5, "time": 1001, "run_s": 1})
        self.assertEqual(logged[1]["validation_loss"], 8.25)
        self.assertEqual(logged[2], {"step": 2, "loss": 7, "time": 1002, "run_s": 2})
        # the run resumes after step 1, and computes the others again
        run.replace(line(1, 1001, loss=8.5, mfu=None) + line(1, 1001.5, validation_loss=8.25))
        run.append(line(2, 1012, loss=7.125))
        self.assertEqual(run.wait_for(5), [1, 1, 2, 3, 2])
        self.assertEqual(run.recorded("log")[-1][1]["loss"], 7.125)
        # another start of the script logs only what is new, to the same run
        run.wait_until_kept(kind, line(2, 1012, loss=7.125))
        run.stop()
        run.append(line(3, 1013, loss=6.125))
        run.start("project")
        self.assertEqual(run.wait_for(6), [1, 1, 2, 3, 2, 3])
        # a task's values are not those of the training
        run.append(line(3, 1014, task="hellaswag", acc=0.25, loss=2.5))
        self.assertEqual(run.wait_for(7)[-1], 3)
        self.assertEqual(run.recorded("log")[-1][1],
                         {"step": 3, "tasks/hellaswag/acc": 0.25, "tasks/hellaswag/loss": 2.5, "time": 1014,
                          "run_s": 14})
        return run

    def log_each_line_once(self, lines, stays=""):
        """These lines, with restarts of the script and of the run, which keeps the first line and one that stays."""
        run = Followed("wandb")
        self.addCleanup(run.close)
        run.append("".join(lines[:3]))
        run.start()
        run.wait_for(3)
        run.wait_until_kept("wandb", lines[2])
        run.stop()
        run.append("".join(lines[3:]))
        run.start()
        run.wait_for(len(lines))
        run.wait_until_kept("wandb", lines[-1])
        # the run goes back to its first step while nobody looks, and again while the script does
        run.stop()
        again = line(2, 1002, loss=3)
        run.replace(lines[0] + stays + again)
        run.start()
        run.wait_for(len(lines) + 1)
        run.wait_until_kept("wandb", again)
        last = line(2, 1002, loss=2)
        run.replace(lines[0] + stays + last)
        run.wait_for(len(lines) + 2)
        run.wait_until_kept("wandb", last)
        logged = [values for _, values in run.recorded("log")]
        self.assertEqual(logged, [numbers(text) for text in [*lines, again, last]])

    def test_lines_of_the_same_time(self):
        validation = [line(2, 1002, task=task, acc=0.5) for task in "abc"]
        self.log_each_line_once([line(1, 1001, loss=8), line(2, 1002, loss=7), *validation, line(3, 1002, loss=6)])

    def test_a_later_event_stays_when_the_run_goes_back(self):
        event = line(3, 1003, event="skipped", event_number=1)
        self.log_each_line_once([line(1, 1001, loss=8), line(2, 1002, loss=7), event, line(3, 1003, loss=6)], event)

    def test_a_clock_that_goes_back(self):
        self.log_each_line_once([line(step, 1010 - step, loss=step) for step in range(1, 6)])

    def test_lines_of_earlier_versions_have_no_time(self):
        self.log_each_line_once(['{"step": %d, "loss": 8}\n' % step for step in range(1, 6)])

    def test_wandb(self):
        run = self.follow("wandb")
        first, second = run.recorded("start")
        self.assertEqual(first[1:], ["run", "coeus", "allow"])
        self.assertEqual(second, [first[0], "run", "project", "allow"])
        self.assertGreaterEqual(len(first[0]), 8)
        self.assertEqual(run.recorded("metric"), [["*", "step"]] * 2)

    def test_mlflow(self):
        run = self.follow("mlflow")
        self.assertEqual(run.recorded("start"), [[None, "run"], ["made", None]])
        self.assertEqual(run.recorded("experiment"), [["coeus"], ["project"]])


if __name__ == "__main__":
    unittest.main()
