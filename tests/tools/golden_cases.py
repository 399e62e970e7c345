# SPDX-License-Identifier: Apache-2.0
"""How the golden tests treat the models that they find: golden_cases.py TEST_GOLDEN. The test makes folders of models
from one case of golden/models."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import unittests

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ""
CASE = "llama3_gqa"
SKIPPED = 77
MODELS = Path(os.environ.get("COEUS_SHARED", ROOT.parent / "shared")) / "golden/models"


@unittest.skipUnless((MODELS / CASE).is_dir(), "there are no reference files (COEUS_SHARED)")
class Models(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.shared = Path(folder.name)
        (self.shared / "golden/families").mkdir(parents=True)

    def add(self, name, change=lambda config: None):
        """A case with a changed config.json."""
        case = self.shared / "golden/models" / name
        shutil.copytree(MODELS / CASE, case)
        for file in ("config.json", "config_4x.json"):
            config = json.loads((case / file).read_text())
            change(config)
            (case / file).write_text(json.dumps(config))
        return case

    def run_tests(self, required="1", tests="golden: models in float64"):
        done = subprocess.run([PROGRAM, tests], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              env=dict(os.environ, COEUS_SHARED=str(self.shared), COEUS_REQUIRE_GOLDEN=required))
        return done.returncode, done.stdout

    def test_existing_models_are_compared(self):
        self.add("by any name")
        self.add("other", lambda config: config.update(architectures=["OtherForCausalLM"]))
        code, said = self.run_tests()
        self.assertEqual(code, 0, said)
        self.assertIn("models/by any name: compared\n", said)
        self.assertIn("models/other: left out: no family has the architecture OtherForCausalLM\n", said)

    def test_a_refused_feature_fails(self):
        self.add("biased", lambda config: config.update(mlp_bias=True))
        code, said = self.run_tests()
        self.assertNotIn(code, (0, SKIPPED), said)
        self.assertRegex(said, "mlp_bias must be false")

    def test_an_unknown_key_fails(self):
        self.add("known")
        self.add("unknown", lambda config: config.update(logit_softcap=30))
        for tests in ("golden: models in float64", "golden: both forms of config.json*"):
            code, said = self.run_tests(tests=tests)
            self.assertNotIn(code, (0, SKIPPED), said)
            self.assertIn("logit_softcap", said)

    def test_a_wrong_value_fails(self):
        self.add("wrong", lambda config: config.update(rms_norm_eps=2e-5))
        self.assertNotIn(self.run_tests()[0], (0, SKIPPED))
        (self.add("damaged") / "config.json").write_text("{}")
        self.assertNotIn(self.run_tests()[0], (0, SKIPPED))

    def test_no_case_compared(self):
        self.add("other", lambda config: config.update(architectures=["OtherForCausalLM"]))
        self.assertEqual(self.run_tests(required="0")[0], SKIPPED)
        self.assertNotIn(self.run_tests()[0], (0, SKIPPED))


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittests.main()
