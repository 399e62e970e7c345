#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures the training speed of Llamas on one GPU, compared with PyTorch: gpu.sh [FOLDER [CASE ...]], or, for a command
# of ten minutes, gpu.sh FOLDER short. See gpu.py.
python=${COEUS_TORCH_PYTHON:-python3}
command -v "$python" >/dev/null || { echo "bench/gpu.sh needs python3 (or COEUS_TORCH_PYTHON)" >&2; exit 2; }
exec "$python" -B "$(dirname "$0")/gpu.py" "$@"
