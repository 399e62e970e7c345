#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the scalars that TensorBoard's own reader finds in a folder, one line "KEY STEP VALUE" each.

    PYTHON_WITH_TENSORBOARD tests/tools/read_events.py outputs/tb
"""
import sys

from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={SCALARS: 0})
events.Reload()
for key in events.Tags()["scalars"]:
    for event in events.Scalars(key):
        print(key, event.step, repr(event.value))
