#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Encodes pictures and captions for Coeus: one HDF5 file, which doc/images.md describes.

    encode.py PLACE... --output FILE.h5 [--size 256] [--crops 1] [--t5_tokens 256] [--limit N]

PLACE is a folder of pictures, each with its caption in a text file of the same name (a.jpg, a.txt), or a tar file of
such pairs (webdataset). Pictures are read in the order of their names. As in torchtitan, a picture whose width or
height is below --size is left out, the shorter edge of the others becomes --size, and a square is cut out; --crops N
cuts N squares, which the epochs of a run take in turn. Broken pictures are left out and named. The encoders are those
of Flux: T5, CLIP and the autoencoder. Their output is stored in bfloat16. The empty prompt is encoded too.

Needs h5py, torch, transformers, diffusers, sentencepiece and Pillow. The weights come from Hugging Face, or from
folders (--t5, --clip, --autoencoder). The file appears under its name when it is complete."""
import argparse
import io
import math
import os
import pathlib
import random
import tarfile

PICTURES = (".jpg", ".jpeg", ".png", ".webp")


def entries_of(place):
    """Pairs of a folder or a tar file: name, function that reads the picture, function that reads the caption."""
    place = pathlib.Path(place)
    if place.is_dir():
        for file in sorted(place.rglob("*")):
            text = file.with_suffix(".txt")
            if file.suffix.lower() in PICTURES and text.exists(): yield str(file), file.read_bytes, text.read_bytes
    elif place.exists() and tarfile.is_tarfile(place):
        with tarfile.open(place) as tar:
            members = {member.name: member for member in tar if member.isfile()}
            for name in sorted(members):
                stem, dot, kind = name.rpartition(".")
                if dot + kind.lower() in PICTURES and stem + ".txt" in members:
                    yield (f"{place}:{name}", lambda name=name: tar.extractfile(members[name]).read(),
                           lambda stem=stem: tar.extractfile(members[stem + ".txt"]).read())
    else:
        raise SystemExit(f"{place}: is neither a folder nor a tar file")


def pictures_of(places):
    """The pictures and captions of all places; each picture as a function of none."""
    for place in places:
        for name, picture, caption in entries_of(place): yield name, picture, caption().decode("utf-8", "replace")


def opened(name, content):
    """The decoded picture; None if it is broken."""
    from PIL import Image, ImageOps
    try:
        return ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    except Exception as error:  # Pillow has many kinds
        print(f"{name} is left out: {error}")
        return None


def squares_of(image, size, crops, draw):
    """Squares of the picture, as bytes of rows of RGB. Their places along the longer edge are drawn."""
    from PIL import Image
    width, height = image.size
    shorter, longer = min(width, height), max(width, height)
    resized = math.ceil(size / shorter * longer)
    image = image.resize((resized, size) if width >= height else (size, resized), Image.Resampling.BICUBIC)
    for _ in range(crops):
        offset = draw.randint(0, resized - size)
        left, top = (offset, 0) if width >= height else (0, offset)
        yield image.crop((left, top, left + size, top + size)).convert("RGB").tobytes()


class Encoders:
    """T5, CLIP and the autoencoder, without gradients. Their results are bfloat16, as arrays of uint16."""

    def __init__(self, options):
        import torch
        from diffusers import AutoencoderKL
        from transformers import AutoTokenizer, CLIPTextModel, T5EncoderModel
        self.torch, self.options = torch, options

        def load(kind, place, **more):
            return kind.from_pretrained(place, **more).to(options.device).eval().requires_grad_(False)

        self.t5_words, self.clip_words = (AutoTokenizer.from_pretrained(place) for place in (options.t5, options.clip))
        self.t5 = load(T5EncoderModel, options.t5, dtype=torch.bfloat16)
        self.clip = load(CLIPTextModel, options.clip)
        at = {"subfolder": "vae"} if options.autoencoder_folder else {}
        self.autoencoder = load(AutoencoderKL, options.autoencoder, **at)

    def stored(self, tensor):
        torch = self.torch
        return tensor.to(torch.bfloat16).view(torch.int16).cpu().numpy().view("uint16")

    def ids(self, words, captions, length):
        found = words(captions, truncation=True, max_length=length, padding="max_length", return_tensors="pt")
        return found["input_ids"].to(self.options.device)

    def texts(self, captions):
        """T5's output [n, T, c], whose padding counts as in torchtitan, and CLIP's pooled output [n, v]."""
        t5 = self.t5(self.ids(self.t5_words, captions, self.options.t5_tokens)).last_hidden_state
        clip = self.clip(self.ids(self.clip_words, captions, 77)).pooler_output
        return self.stored(t5), self.stored(clip)

    def latents(self, squares):
        """Mean and logvar [n, C, h, w]."""
        torch, size = self.torch, self.options.size
        pixels = torch.stack([torch.frombuffer(bytearray(square), dtype=torch.uint8).reshape(size, size, 3)
                              for square in squares])
        pixels = pixels.permute(0, 3, 1, 2).to(self.options.device).float() / 255 * 2 - 1
        found = self.autoencoder.encode(pixels).latent_dist
        return self.stored(found.mean), self.stored(found.logvar)


def write(file, options, encoders, chosen):
    """Writes the pictures whose numbers are in `chosen`."""
    import h5py
    draw, n, crops = random.Random(options.seed), len(chosen), options.crops
    settings = encoders.autoencoder.config
    file.attrs.update(format="encoded images", codec="ae", scale=settings.scaling_factor, shift=settings.shift_factor,
                      text=f"{options.t5}, {options.clip}")
    arrays = {}

    def put(name, first, values, shape):
        if name not in arrays:  # contiguous, at its final size
            arrays[name] = file.create_dataset(name, shape=shape, dtype="uint16")
            arrays[name].attrs["dtype"] = "bfloat16"
        arrays[name][first:first + len(values)] = values

    t5, clip = encoders.texts([""])
    put("t5_empty", 0, t5[0], t5.shape[1:])
    put("clip_empty", 0, clip[0], clip.shape[1:])
    captions = file.create_dataset("captions", shape=(n,), dtype=h5py.string_dtype())
    some, done = [], 0
    for number, (name, picture, caption) in enumerate(pictures_of(options.places)):
        if number not in chosen: continue
        some.append((caption, *squares_of(opened(name, picture()), options.size, crops, draw)))
        if len(some) < options.batch and done + len(some) < n: continue
        t5, clip = encoders.texts([caption for caption, *_ in some])
        put("t5", done, t5, (n, *t5.shape[1:]))
        put("clip", done, clip, (n, *clip.shape[1:]))
        for name, values in zip(("mean", "logvar"), encoders.latents([cut for _, *cuts in some for cut in cuts])):
            latent = values.shape[1:]
            if "factor" not in file.attrs: file.attrs["factor"] = options.size // latent[-1]
            if crops > 1: values = values.reshape(len(some), crops, *latent)
            put(f"latents/{name}", done, values, (n, *values.shape[1:]))
        captions[done:done + len(some)] = [caption for caption, *_ in some]
        some, done = [], done + len(some)
        print(f"{done} of {n} pictures")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="+", metavar="PLACE", help="folder or tar file of pictures and captions")
    parser.add_argument("--output", required=True, metavar="FILE.h5")
    parser.add_argument("--size", type=int, default=256, help="edge of the squares, in pixels (default: %(default)s)")
    parser.add_argument("--crops", type=int, default=1, help="squares of each picture (default: %(default)s)")
    parser.add_argument("--limit", type=int, help="take only so many pictures")
    parser.add_argument("--t5", default="google/t5-v1_1-xxl", help="(default: %(default)s)")
    parser.add_argument("--t5_tokens", type=int, default=256, help="(default: %(default)s; flux-dev: 512)")
    parser.add_argument("--clip", default="openai/clip-vit-large-patch14", help="(default: %(default)s)")
    parser.add_argument("--autoencoder", default="black-forest-labs/FLUX.1-schnell",
                        help="a pipeline, whose vae is taken, or the folder of a vae (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=16, help="pictures at a time (default: %(default)s)")
    parser.add_argument("--device", default="cuda", help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the places of the squares (default: %(default)s)")
    options = parser.parse_args()
    if options.size < 16 or options.size % 16:
        raise SystemExit(f"--size {options.size}: must be a multiple of 16; the nearest is "
                         f"{max(16, (options.size + 8) // 16 * 16)}")
    for name in ("crops", "batch", "t5_tokens"):
        if getattr(options, name) < 1: raise SystemExit(f"--{name} {getattr(options, name)}: must be at least 1")
    if os.path.exists(options.output): raise SystemExit(f"{options.output}: exists; choose another name")
    options.autoencoder_folder = not os.path.exists(os.path.join(options.autoencoder, "config.json"))
    chosen, small = set(), 0
    for number, (name, picture, _) in enumerate(pictures_of(options.places)):
        image = opened(name, picture())
        if image is None: continue
        if min(image.size) < options.size: small += 1
        else: chosen.add(number)
        if len(chosen) == options.limit: break
    if small: print(f"{small} pictures are smaller than {options.size} pixels and are left out")
    if not chosen:
        raise SystemExit(f"{', '.join(options.places)}: no picture has {options.size} pixels or more and a caption")
    import h5py
    part = options.output + ".part"
    with h5py.File(part, "w") as file: write(file, options, Encoders(options), chosen)
    os.replace(part, options.output)
    print(f"wrote {options.output}: {len(chosen)} pictures; `coeus info {options.output} --verify` checks it")


if __name__ == "__main__":
    main()
