#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a pair of Megatron-LM, PREFIX.bin and PREFIX.idx, which Coeus trains on: tokens.py TEXT PREFIX

The tokenizer here is the simplest one: each byte is a token, and 256 ends a document, which is a line of TEXT. Put your
own in its place."""
import array
import struct
import sys

text, prefix = sys.argv[1:]
lengths, offsets = array.array("i"), array.array("q")
with open(text, "rb") as lines, open(prefix + ".bin", "wb") as ids:
    for line in lines:
        tokens = array.array("H", list(line.rstrip(b"\n"))) + array.array("H", [256])
        offsets.append(ids.tell())  # where the sequence begins, in bytes
        lengths.append(len(tokens))
        tokens.tofile(ids)
with open(prefix + ".idx", "wb") as index:
    index.write(b"MMIDIDX\0\0" + struct.pack("<QB", 1, 8))  # version 1, ids of 16 bits without sign
    index.write(struct.pack("<QQ", len(lengths), len(lengths) + 1))
    lengths.tofile(index)
    offsets.tofile(index)
    array.array("q", range(len(lengths) + 1)).tofile(index)  # each document is one sequence
