# SPDX-License-Identifier: Apache-2.0
"""Sorts the kernels of Coeus and of PyTorch into the classes that bench/gpu.py compares."""
import re

# in the order of the table
CLASSES = ("products", "attention, forward", "attention, backward", "optimizer with norm", "norms, RoPE, SwiGLU",
           "loss and embedding", "other kernels")
OUTSIDE = "outside of kernels"

OF_COEUS = {"products": ("gemm", "scaled_gemm"),
            "attention, forward": ("attention",),
            "attention, backward": ("attention_backward",),
            "optimizer with norm": ("adam", "sum_of_squares", "finish_norm"),
            "norms, RoPE, SwiGLU": ("rms_norm", "rms_norm_backward", "rope", "swiglu", "swiglu_backward"),
            "loss and embedding": ("embedding", "embedding_backward", "log_sum_exp", "cross_entropy", "sum")}
# names of kernels on a GPU, and of operators of a CPU; the first pattern that is found counts
OF_TORCH = (("attention, backward", r"flash_bwd|bprop|fmha_cutlassB|attention.*backward|dot_do_o|convert_dq"),
            ("attention, forward", r"flash_fwd|fprop|fmha_cutlassF|flash_attention|scaled_dot_product|splitkv"),
            ("optimizer with norm", r"multi_tensor_apply|fused_adam|_foreach_|lpnorm|linalg_vector_norm"),
            ("loss and embedding", r"nll_loss|log_softmax|softmax|cross_entropy|embedding|indexSelect|vectorized_gather"),
            ("products", r"gemm|nvjet|cutlass|cublas|splitk|xmma|aten::(add)?mm\b|aten::b?mm\b|aten::linear\b"),
            # what the compiler fuses from norms, RoPE, SwiGLU and residual sums, whose names are mixed
            ("norms, RoPE, SwiGLU", r"triton_|rms_norm|silu|layer_norm|rsqrt|aten::cat\b|CatArrayBatched|cpp_fused"))


def class_of_coeus(kernel):
    return next((name for name, kernels in OF_COEUS.items() if kernel in kernels), "other kernels")


def class_of_torch(kernel):
    return next((name for name, pattern in OF_TORCH if re.search(pattern, kernel, re.IGNORECASE)), "other kernels")


def by_class(kernels, class_of):
    """Returns the milliseconds of every class, of pairs (name of a kernel, milliseconds)."""
    ms = dict.fromkeys(CLASSES, 0.0)
    for name, each in kernels:
        ms[class_of(name)] += each
    return ms


def with_outside(ms, step_ms):
    """Adds what a measured step has outside of the kernels of a profile. It is negative if kernels of several queues
    run at the same time, or if the observed steps were slower."""
    return dict(ms, **{OUTSIDE: step_ms - sum(ms.values())})


def table(card, ours, theirs):
    """Compares two steps by class, as Markdown. An empty dictionary: that side has no profile, so there is no difference."""
    def cell(ms, sign=""):
        return "" if ms is None else f"{ms:{sign}.1f}"
    lines = [f"| class, ms of a step on {card} | Coeus | PyTorch | difference |", "|---|---:|---:|---:|"]
    rows = [(name, *(side.get(name, 0.0) if side else None for side in (ours, theirs))) for name in (*CLASSES, OUTSIDE)]
    rows.append(("**step**", sum(ours.values()) if ours else None, sum(theirs.values()) if theirs else None))
    for name, a, b in rows:
        lines.append(f"| {name} | {cell(a)} | {cell(b)} | {cell(a - b, '+') if ours and theirs else ''} |")
    return "\n".join(lines)
