# SPDX-License-Identifier: Apache-2.0
"""tests/data/tokenizers/forms.json is what the libraries of tokenizers give. COEUS_TOKENIZERS_PYTHON is a Python that
has those that make.py names."""
import os
import pathlib
import subprocess
import unittest

MAKE = pathlib.Path(__file__).resolve().parents[1] / "data/tokenizers/make.py"


class TokenizerForms(unittest.TestCase):
    @unittest.skipUnless(os.environ.get("COEUS_TOKENIZERS_PYTHON"), "there is no Python with tokenizers")
    def test_the_libraries_give_what_is_stored(self):
        run = subprocess.run([os.environ["COEUS_TOKENIZERS_PYTHON"], MAKE, "--check"], text=True, capture_output=True)
        self.assertEqual(run.returncode, 0, run.stderr)


if __name__ == "__main__":
    unittest.main()
