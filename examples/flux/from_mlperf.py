#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a file of encoded images for Coeus of the encodings that MLPerf Training publishes for Flux.1:

    from_mlperf.py FOLDER --empty FOLDER --output FILE.h5 [--limit N]

FOLDER is cc12m_preprocessed or coco_preprocessed: a dataset that `datasets` saved, whose columns t5_encodings,
clip_encodings, mean and logvar are NumPy files with bfloat16 in uint16. A column timestep (of COCO, 0 to 7) becomes
times of 0/8 to 7/8, at which a validation then measures the loss. --empty is the folder empty_encodings, with
t5_empty.npy and clip_empty.npy. doc/images.md has the benchmark's settings.

Needs h5py, numpy and datasets. Nothing is computed: all bits are kept. The file appears under its name when it is
complete."""
import argparse
import io
import os
import pathlib

COLUMNS = {"t5": "t5_encodings", "clip": "clip_encodings", "latents/mean": "mean", "latents/logvar": "logvar"}
EXTENTS = {"t5": 2, "clip": 1, "latents/mean": 3, "latents/logvar": 3}  # of a sample


def array_of(numpy, value, extents, name):
    """The array of a NumPy file, which must be uint16 with so many extents; others of 1 may precede them."""
    array = numpy.load(io.BytesIO(value) if isinstance(value, (bytes, bytearray)) else value)
    if str(array.dtype) != "uint16":
        raise SystemExit(f"{name}: has elements of type {array.dtype}, but must have bfloat16 in uint16")
    while len(array.shape) > extents and array.shape[0] == 1: array = array[0]
    if len(array.shape) != extents:
        raise SystemExit(f"{name}: is {list(array.shape)}, but must have {extents} extents")
    return array


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", metavar="FOLDER", help="cc12m_preprocessed or coco_preprocessed")
    parser.add_argument("--empty", required=True, metavar="FOLDER", help="empty_encodings")
    parser.add_argument("--output", required=True, metavar="FILE.h5")
    parser.add_argument("--limit", type=int, help="take only so many samples")
    options = parser.parse_args()
    if os.path.exists(options.output): raise SystemExit(f"{options.output}: exists; choose another name")
    import datasets, h5py, numpy
    samples = datasets.load_from_disk(options.dataset)
    n = min(len(samples), options.limit or len(samples))
    if n == 0: raise SystemExit(f"{options.dataset}: has no samples")
    missing = [column for column in COLUMNS.values() if column not in samples[0]]
    if missing: raise SystemExit(f"{options.dataset}: has no column {missing[0]}, but {', '.join(sorted(samples[0]))}")
    part = options.output + ".part"
    with h5py.File(part, "w") as file:
        file.attrs.update(format="encoded images", codec="ae", factor=8, scale=0.3611, shift=0.1159,
                          text="google/t5-v1_1-xxl, openai/clip-vit-large-patch14")

        def create(name, shape):
            array = file.create_dataset(name, shape=shape, dtype="uint16")
            array.attrs["dtype"] = "bfloat16"
            return array

        for name in ("t5_empty", "clip_empty"):
            place = pathlib.Path(options.empty) / f"{name}.npy"
            values = array_of(numpy, place, EXTENTS[name.removesuffix("_empty")], place)
            create(name, values.shape)[...] = values
        arrays = {}
        times = file.create_dataset("times", shape=(n,), dtype="float32") if "timestep" in samples[0] else None
        for number in range(n):
            sample = samples[number]
            for name, column in COLUMNS.items():
                place = f"{options.dataset}, {column} of sample {number}"
                values = array_of(numpy, sample[column], EXTENTS[name], place)
                if name not in arrays: arrays[name] = create(name, (n, *values.shape))
                if arrays[name].shape[1:] != values.shape:
                    raise SystemExit(f"{options.dataset}: {column} of sample {number} is {list(values.shape)}, but "
                                     f"that of sample 0 is {list(arrays[name].shape[1:])}")
                arrays[name][number] = values
            if times is not None: times[number] = int(sample["timestep"]) / 8
            if (number + 1) % 1000 == 0: print(f"{number + 1} of {n} samples", flush=True)
    os.replace(part, options.output)
    print(f"wrote {options.output}: {n} samples; `coeus info {options.output}` shows what is in it")


if __name__ == "__main__":
    main()
