# SPDX-License-Identifier: Apache-2.0
"""Writes images.h5 with h5py and numpy: encoded images with every array, in the types that h5py can write. Made with
h5py 3.16 and numpy 2.4: python3 make.py"""
import pathlib

import h5py
import numpy as np

SAMPLES, CROPS, CHANNELS, HEIGHT, WIDTH, TOKENS, TEXT, POOLED = 3, 2, 2, 2, 4, 2, 3, 5


def counted(*shape):
    """0, 1/4, 2/4, ...: exact in each type."""
    return (np.arange(np.prod(shape)) / 4).reshape(shape).astype("float32")


def bits(values):
    """The upper half of float32: bfloat16."""
    return (values.view("uint32") >> 16).astype("uint16")


with h5py.File(pathlib.Path(__file__).parent / "images.h5", "w") as f:
    f.attrs.update(format="encoded images", codec="ae", factor=8, scale=0.3611, shift=0.1159, text="words of a test")
    latents = (SAMPLES, CROPS, CHANNELS, HEIGHT, WIDTH)
    f["latents/mean"] = counted(*latents).astype("float16")
    f["latents/logvar"] = bits(-counted(*latents))
    f["t5"] = bits(counted(SAMPLES, TOKENS, TEXT))
    f["clip"] = counted(SAMPLES, POOLED)
    f["t5_empty"] = bits(counted(TOKENS, TEXT) - 8)
    f["clip_empty"] = counted(POOLED) - 8
    for name in ("latents/logvar", "t5", "t5_empty"): f[name].attrs["dtype"] = "bfloat16"
    f["times"] = np.arange(SAMPLES) / 8
    f["noise"] = counted(SAMPLES, CHANNELS, HEIGHT, WIDTH) - 3
    f["captions"] = ["a red circle", "zwei Kreise – ein Quadrat", ""]
