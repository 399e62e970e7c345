# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's program with linear layers of torchao in 8 bits, which are emulated: recipe `tensorwise`.

    torch_float8.py PROGRAM [option of PROGRAM ...]      PROGRAM: see compare_torch.py
"""
import importlib.util
import sys

from torchao.float8 import Float8LinearConfig, convert_to_float8_training

specification = importlib.util.spec_from_file_location("program", sys.argv.pop(1))
program = importlib.util.module_from_spec(specification)
specification.loader.exec_module(program)
make_model = program.Llama
program.Llama = lambda *sizes: convert_to_float8_training(make_model(*sizes), config=Float8LinearConfig(emulate=True))
program.main()
