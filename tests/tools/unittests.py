# SPDX-License-Identifier: Apache-2.0
"""Runs Python's unit tests for ctest, as unittest itself does. Each reason for a skipped test is printed on one line,
for tools/skipped.py to read. If all tests were skipped the exit code is 77, which ctest shows as skipped. If none was
found it is 1."""
import sys
import unittest

SKIPPED = 77  # as skipped_code of tests/support/skip.hpp


def main(module="__main__"):
    result = unittest.main(module=module, exit=False).result
    for _, why in result.skipped:
        print(f"skipped: {why}", flush=True)
    if result.testsRun == 0:
        print("no test was found")
    if not result.wasSuccessful() or result.testsRun == 0:
        sys.exit(1)
    skipped = {test.id() for test, _ in result.skipped}
    sys.exit(SKIPPED if skipped and len(skipped) >= result.testsRun else 0)


if __name__ == "__main__":
    main(None)
