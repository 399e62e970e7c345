# SPDX-License-Identifier: Apache-2.0
"""The scripts of examples/flux, with modules in the place of h5py, numpy, torch, transformers, diffusers, datasets and
Pillow: which pictures they take, and the layout of the file that they write. The stand-in of h5py writes JSON."""
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STAND_INS = {
    "arrays": '''
def shape_of(data): return (len(data), *shape_of(data[0])) if isinstance(data, list) else ()
def flat(data): return [x for part in data for x in flat(part)] if isinstance(data, list) else [data]
def shaped(values, shape):
    if len(shape) == 1: return values
    each = len(values) // shape[0]
    return [shaped(values[i * each:(i + 1) * each], shape[1:]) for i in range(shape[0])]
def mapped(data, change): return [mapped(x, change) for x in data] if isinstance(data, list) else change(data)
class Array:
    def __init__(self, data, dtype="float32"): self.data, self.dtype, self.shape = data, dtype, shape_of(data)
    def __len__(self): return self.shape[0]
    def __getitem__(self, i): return Array(self.data[i], self.dtype)
    def reshape(self, *shape): return Array(shaped(flat(self.data), shape), self.dtype)
    def view(self, dtype): return Array(self.data, dtype)
''',
    "torch": '''
import arrays
bfloat16, int16, uint8 = "bfloat16", "int16", "uint8"
class Tensor(arrays.Array):
    def with_(self, data): return Tensor(data, self.dtype)
    def reshape(self, *shape): return self.with_(super().reshape(*shape).data)
    def permute(self, *order):
        assert order == (0, 3, 1, 2)
        return self.with_([[[[pixel[c] for pixel in row] for row in one] for c in range(3)] for one in self.data])
    def to(self, where): return Tensor(self.data, where if where == bfloat16 else self.dtype)
    def view(self, dtype):
        assert self.dtype == bfloat16
        return Tensor(self.data, dtype)
    def cpu(self): return self
    def float(self): return self
    def numpy(self): return arrays.Array(self.data, self.dtype)
    def __truediv__(self, by): return self.with_(arrays.mapped(self.data, lambda x: x / by))
    def __mul__(self, by): return self.with_(arrays.mapped(self.data, lambda x: x * by))
    def __sub__(self, by): return self.with_(arrays.mapped(self.data, lambda x: x - by))
def frombuffer(content, dtype): return Tensor(list(content), dtype)
def stack(parts): return Tensor([part.data for part in parts], parts[0].dtype)
''',
    "models": '''
from types import SimpleNamespace
from torch import Tensor
class Model:
    @classmethod
    def from_pretrained(kind, place, **settings):
        model = kind()
        model.place, model.settings = place, settings
        return model
    def to(self, device): return self
    def eval(self): return self
    def requires_grad_(self, no): return self
''',
    "transformers": '''
from models import *
class AutoTokenizer(Model):
    def __call__(self, texts, truncation, max_length, padding, return_tensors):
        assert truncation and padding == "max_length" and return_tensors == "pt"
        return {"input_ids": Tensor([[len(text)] * max_length for text in texts])}
class T5EncoderModel(Model):
    def __call__(self, ids):
        assert self.settings == {"dtype": "bfloat16"}
        return SimpleNamespace(last_hidden_state=Tensor([[[i, 1, 2] for i in row] for row in ids.data]))
class CLIPTextModel(Model):
    def __call__(self, ids):
        assert ids.shape[1] == 77
        return SimpleNamespace(pooler_output=Tensor([[row[0], 3] for row in ids.data]))
''',
    "diffusers": '''
from models import *
class AutoencoderKL(Model):
    config = SimpleNamespace(scaling_factor=0.25, shift_factor=0.5)
    def encode(self, pixels):
        assert self.settings == {"subfolder": "vae"} and pixels.shape[1] == 3
        edge = pixels.shape[2] // 8
        def of(value): return Tensor([[[[value(one)] * edge] * edge] * 4 for one in pixels.data])
        return SimpleNamespace(latent_dist=SimpleNamespace(mean=of(lambda one: one[0][0][0]), logvar=of(lambda _: -9)))
''',
    "PIL": '''
class Picture:
    """Its pixels are the number of its content."""
    def __init__(self, width, height, value): self.size, self.value = (width, height), value
    def resize(self, size, how): return Picture(*size, self.value)
    def crop(self, box):
        assert 0 <= box[0] and 0 <= box[1] and box[2] <= self.size[0] and box[3] <= self.size[1]
        return Picture(box[2] - box[0], box[3] - box[1], self.value)
    def convert(self, mode): return self
    def tobytes(self): return bytes([self.value]) * (3 * self.size[0] * self.size[1])
class Image:
    class Resampling: BICUBIC = 3
    @staticmethod
    def open(file):
        words = file.read().split()
        if len(words) != 3: raise OSError("cannot identify image file")
        return Picture(*map(int, words))
class ImageOps:
    @staticmethod
    def exif_transpose(image): return image
''',
    "numpy": '''
import json, arrays
def load(file):
    written = json.loads(file.read() if hasattr(file, "read") else open(file).read())
    return arrays.Array(written["data"], written["dtype"])
''',
    "datasets": '''
import json, pathlib
def load_from_disk(folder):
    rows = json.loads(pathlib.Path(folder, "rows.json").read_text())
    return [{k: v.encode() if k in ("mean", "logvar") or k.endswith("encodings") else v for k, v in row.items()}
            for row in rows]
''',
    "h5py": '''
import json, arrays
def string_dtype(): return "text"
class Dataset:
    def __init__(self, shape, dtype):
        self.shape, self.dtype, self.attrs, self.rows = shape, dtype, {}, [None] * shape[0]
    def written(self): return [list(self.shape), self.dtype, self.attrs, self.rows]
    def __setitem__(self, at, value):
        value = getattr(value, "data", value)
        if at is Ellipsis: at = slice(0, self.shape[0])
        if isinstance(at, slice):
            assert len(value) == at.stop - at.start and at.stop <= len(self.rows)
            self.rows[at] = value
        else: self.rows[at] = value
class File:
    def __init__(self, path, mode):
        assert mode == "w" and path.endswith(".part")
        self.path, self.attrs, self.arrays = path, {}, {}
    def create_dataset(self, name, shape, dtype):
        assert name not in self.arrays
        self.arrays[name] = Dataset(tuple(shape), dtype)
        return self.arrays[name]
    def __enter__(self): return self
    def __exit__(self, *error):
        for name, array in self.arrays.items(): assert error[0] or arrays.shape_of(array.rows) == array.shape, name
        found = {"attributes": self.attrs, "arrays": {name: array.written() for name, array in self.arrays.items()}}
        with open(self.path, "w") as file: json.dump(found, file)
'''}
BFLOAT16 = {"dtype": "bfloat16"}


class Encodings(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="coeus-flux-")
        self.addCleanup(place.cleanup)
        self.folder = Path(place.name)
        (self.folder / "modules").mkdir()
        for name, text in STAND_INS.items(): (self.folder / "modules" / f"{name}.py").write_text(text)
        self.output = self.folder / "a.h5"

    def run_script(self, script, *arguments):
        command = [sys.executable, "-B", ROOT / "examples/flux" / script, *arguments, "--output", self.output]
        return subprocess.run(command, env=os.environ | {"PYTHONPATH": str(self.folder / "modules")},
                              capture_output=True, text=True)

    def written(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(Path(f"{self.output}.part").exists())
        found = json.loads(self.output.read_text())
        self.output.unlink()
        return found["attributes"], found["arrays"]

    def refused(self, message, script, *arguments):
        done = self.run_script(script, *arguments)
        self.assertEqual(done.returncode, 1)
        self.assertIn(message, done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def pictures(self):
        """Five pictures with captions: one is too small, and one is broken. Another one has no caption."""
        place = self.folder / "pictures"
        (place / "below").mkdir(parents=True)
        for name, content, caption in (("a.jpg", "40 32 0", "ab"), ("b.PNG", "32 60 255", "abc"),
                                       ("c.jpg", "31 90 7", "small"), ("below/d.webp", "32 32 51", ""),
                                       ("e.jpg", "broken", "e"), ("f.jpg", "90 90 1", None)):
            (place / name).write_text(content)
            if caption is not None: (place / name).with_suffix(".txt").write_text(caption)
        return place

    def test_pictures_of_a_folder_and_of_a_tar_file(self):
        place, archive = self.pictures(), self.folder / "a.tar"
        with tarfile.open(archive, "w") as tar:
            for file in sorted(place.rglob("*"), reverse=True):
                if file.is_file(): tar.add(file, file.relative_to(place))
        for source in (place, archive):
            done = self.run_script("encode.py", source, "--size", "32", "--t5_tokens", "6", "--batch", "2", "--t5", "T",
                                   "--clip", "C")
            attributes, arrays = self.written(done)
            self.assertIn("1 pictures are smaller than 32 pixels", done.stdout)
            self.assertIn("e.jpg is left out: cannot identify", done.stdout)
            self.assertEqual(attributes, {"format": "encoded images", "codec": "ae", "factor": 8, "scale": 0.25,
                                          "shift": 0.5, "text": "T, C"})
            shapes = {name: (shape, dtype, attrs) for name, (shape, dtype, attrs, _) in arrays.items()}
            self.assertEqual(shapes, {"latents/mean": ([3, 4, 4, 4], "uint16", BFLOAT16),
                                      "latents/logvar": ([3, 4, 4, 4], "uint16", BFLOAT16),
                                      "t5": ([3, 6, 3], "uint16", BFLOAT16), "clip": ([3, 2], "uint16", BFLOAT16),
                                      "t5_empty": ([6, 3], "uint16", BFLOAT16), "clip_empty": ([2], "uint16", BFLOAT16),
                                      "captions": ([3], "text", {})})
            rows = {name: rows for name, (*_, rows) in arrays.items()}
            self.assertEqual(rows["captions"], ["ab", "abc", ""])
            self.assertEqual(rows["clip"], [[2, 3], [3, 3], [0, 3]])
            self.assertEqual(rows["t5_empty"], [[0, 1, 2]] * 6)
            self.assertEqual([round(row[0][0][0], 9) for row in rows["latents/mean"]], [-1, 1, -0.6])

    def test_crops_and_a_limit(self):
        done = self.run_script("encode.py", self.pictures(), "--size", "32", "--crops", "3", "--limit", "2")
        _, arrays = self.written(done)
        self.assertEqual(arrays["latents/mean"][0], [2, 3, 4, 4, 4])
        self.assertEqual(arrays["latents/logvar"][0], [2, 3, 4, 4, 4])
        self.assertEqual([[round(crop[0][0][0]) for crop in crops] for crops in arrays["latents/mean"][3]],
                         [[-1] * 3, [1] * 3])
        self.assertEqual(arrays["captions"][3], ["ab", "abc"])

    def test_what_is_wrong_is_named(self):
        place = self.pictures()
        self.refused("--size 40: must be a multiple of 16; the nearest is 48", "encode.py", place, "--size", "40")
        self.refused("--crops 0: must be at least 1", "encode.py", place, "--crops", "0")
        self.refused("no picture has 256 pixels or more and a caption", "encode.py", place)
        self.refused("is neither a folder nor a tar file", "encode.py", self.folder / "absent")
        self.output.write_text("")
        self.refused("a.h5: exists; choose another name", "encode.py", place, "--size", "32")
        self.refused("a.h5: exists; choose another name", "from_mlperf.py", place, "--empty", place)

    def mlperf(self, rows):
        def numpy_file(data, dtype="uint16"): return json.dumps({"dtype": dtype, "data": data})
        for row in rows:
            for name, value in row.items():
                if name != "timestep": row[name] = value if isinstance(value, str) else numpy_file(value)
        (self.folder / "rows.json").write_text(json.dumps(rows))
        (self.folder / "t5_empty.npy").write_text(numpy_file([[[1, 2], [3, 4]]]))
        (self.folder / "clip_empty.npy").write_text(numpy_file([[5, 6, 7]]))
        return "from_mlperf.py", self.folder, "--empty", self.folder

    def test_encodings_of_mlperf(self):
        def row(i, **more):
            return {"t5_encodings": [[i, 2], [3, 4]], "clip_encodings": [[i, 6, 7]], "mean": [[[i, 1], [2, 3]]],
                    "logvar": [[[i, 1], [2, 3]]]} | more
        attributes, arrays = self.written(self.run_script(*self.mlperf([row(i) for i in range(3)])))
        self.assertEqual(attributes, {"format": "encoded images", "codec": "ae", "factor": 8, "scale": 0.3611,
                                      "shift": 0.1159, "text": "google/t5-v1_1-xxl, openai/clip-vit-large-patch14"})
        self.assertEqual(arrays, {
            "t5_empty": [[2, 2], "uint16", BFLOAT16, [[1, 2], [3, 4]]],
            "clip_empty": [[3], "uint16", BFLOAT16, [5, 6, 7]],
            "t5": [[3, 2, 2], "uint16", BFLOAT16, [[[i, 2], [3, 4]] for i in range(3)]],
            "clip": [[3, 3], "uint16", BFLOAT16, [[i, 6, 7] for i in range(3)]],
            "latents/mean": [[3, 1, 2, 2], "uint16", BFLOAT16, [[[[i, 1], [2, 3]]] for i in range(3)]],
            "latents/logvar": [[3, 1, 2, 2], "uint16", BFLOAT16, [[[[i, 1], [2, 3]]] for i in range(3)]]})
        _, arrays = self.written(self.run_script(*self.mlperf([row(i, timestep=i) for i in range(8)]), "--limit", "7"))
        self.assertEqual(arrays["times"], [[7], "float32", {}, [i / 8 for i in range(7)]])
        self.refused("sample 1 is [1, 4], but that of sample 0 is [2, 2]",
                     *self.mlperf([row(0), row(1, t5_encodings=[[1, 2, 3, 4]])]))
        self.refused("clip_encodings of sample 0: is [2, 1], but must have 1 extents",
                     *self.mlperf([row(0, clip_encodings=[[1], [2]])]))
        self.refused("mean of sample 0: has elements of type float32, but must have bfloat16",
                     *self.mlperf([row(0, mean='{"dtype": "float32", "data": [1]}')]))
        self.refused("has no column logvar, but clip_encodings, mean, t5_encodings",
                     *self.mlperf([{k: v for k, v in row(0).items() if k != "logvar"}]))


if __name__ == "__main__":
    unittest.main()
