"""Programs of reduces, broadcasts and elementwise ops: name -> (function of Tensors, shapes of its inputs).

Small, so that they are compiled and run in a test; `LARGE` are scheduled and never run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Shapes = tuple[tuple[int, ...], ...]
Pattern = tuple[Callable[..., Any], Shapes]

EPSILON = 1e-5
ROWS = ((8, 32),)


def rmsnorm(x: Any) -> Any:
    return x * (x.square().mean(-1, keepdim=True) + EPSILON).rsqrt()


def standardize(x: Any) -> Any:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True).sqrt() + EPSILON)


def groupnorm(x: Any) -> Any:
    return standardize(x.reshape(x.shape[0], 4, -1)).reshape(x.shape)


def batchnorm(x: Any, axis: int = 0) -> Any:
    centred = x - x.mean(axis, keepdim=True)
    return centred * (centred.square().mean(axis, keepdim=True) + EPSILON).rsqrt()


def masked_softmax(x: Any) -> Any:
    return (x > 0.5).where(x, -1e9).softmax()


def softcap(x: Any) -> Any:
    return ((x / 3).tanh() * 3).softmax()


def attention(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax() @ v


def causal_attention(q: Any, k: Any, v: Any) -> Any:
    return q.scaled_dot_product_attention(k, v, is_causal=True)


def latent_attention(x: Any, down: Any, up_k: Any, up_v: Any, w_q: Any) -> Any:
    latent = rmsnorm(x @ down)
    return attention(x @ w_q, latent @ up_k, latent @ up_v)


def mlp(x: Any, a: Any, b: Any) -> Any:
    return (x @ a).gelu() @ b


def ffn(x: Any, gate: Any, up: Any, down: Any) -> Any:
    return ((x @ gate).silu() * (x @ up)) @ down


def latent_chain(x: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return (((x @ a).silu() @ b).silu() @ c).silu() @ d


def two_chains(x: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return ((x @ a).silu() @ b).sigmoid() * ((x @ c).silu() @ d)


def block(x: Any, w: Any, a: Any, b: Any) -> Any:
    x = x + rmsnorm(x) @ w
    return x + mlp(rmsnorm(x), a, b)


def cross_entropy(x: Any) -> Any:
    return -(x.log_softmax() * x.sigmoid()).sum(-1).mean()


def min_max(x: Any) -> Any:
    low, high = x.min(-1, keepdim=True), x.max(-1, keepdim=True)
    return (x - low) / (high - low + EPSILON)


SQUARE, SEQUENCE = ((16, 16),) * 2, ((2, 8, 16),) * 3

# what the document says of the change alone: kernels before and after it
TABLE: dict[str, tuple[Pattern, int, int]] = {
    "x*sum(x)": ((lambda x: x * x.sum(), ((32,),)), 2, 1),
    "RMSNorm": ((rmsnorm, ROWS), 2, 1),
    "softmax": ((lambda x: x.softmax(), ROWS), 3, 2),
    "sum(x).sqrt()": ((lambda x: x.sum().sqrt(), ROWS), 1, 1),
    "silu(x@w1)*(x@w2)": ((lambda x, a, b: (x @ a).silu() * (x @ b), ((16, 16),) * 3), 1, 1),
}

PATTERNS: dict[str, Pattern] = {
    **{name: pattern for name, (pattern, _, _) in TABLE.items()},
    "x*sum(row)": (lambda x: x * x.sum(-1, keepdim=True), ROWS),
    "x/sum(x)": (lambda x: x / x.abs().sum(-1, keepdim=True), ROWS),
    "x/norm(x)": (lambda x: x / x.square().sum(-1, keepdim=True).sqrt(), ROWS),
    "x-mean rows and columns": (lambda x: x - x.mean(0) - x.mean(-1, keepdim=True), ROWS),
    "RMSNorm, odd rows": (rmsnorm, ((5, 27),)),
    "RMSNorm of wide rows": (rmsnorm, ((3, 256),)),
    "RMSNorm with weight": (lambda x, w: rmsnorm(x) * w, ((8, 32), (32,))),
    "RMSNorm of 3 axes": (rmsnorm, ((2, 3, 32),)),
    "LayerNorm": (lambda x: x.layernorm(), ROWS),
    "LayerNorm of many rows": (lambda x: x.layernorm(), ((16, 64),)),
    "LayerNorm with weight and bias": (lambda x, w, b: x.layernorm() * w + b, ((8, 32), (32,), (32,))),
    "GroupNorm": (groupnorm, ((4, 32),)),
    "BatchNorm": (batchnorm, ((16, 12),)),
    "standardize": (standardize, ROWS),
    "min-max": (min_max, ROWS),
    "softmax of columns": (lambda x: x.softmax(0), ((16, 8),)),
    "softmax of 3 axes": (lambda x: x.softmax(), ((2, 4, 24),)),
    "softmax of wide rows": (lambda x: x.softmax(), ((2, 512),)),
    "softmax of softmax": (lambda x: x.softmax().softmax(), ROWS),
    "softmax, scaled": (lambda x: (x * 0.3).softmax(), ROWS),
    "softmax, masked": (masked_softmax, ROWS),
    "softmax, capped": (softcap, ROWS),
    "log_softmax": (lambda x: x.log_softmax(), ROWS),
    "logsumexp": (lambda x: x - x.exp().sum(-1, keepdim=True).log(), ROWS),
    "cross entropy": (cross_entropy, ROWS),
    "attention": (attention, SEQUENCE),
    "causal attention": (causal_attention, SEQUENCE),
    "attention, 2 heads": (attention, ((2, 2, 8, 16),) * 3),
    "attention of a longer context": (attention, ((2, 4, 16), (2, 16, 16), (2, 16, 16))),
    "latent attention": (latent_attention, ((8, 16), (16, 8), (8, 16), (8, 16), (16, 16))),
    "latent chain": (latent_chain, ((1, 16), (16, 32), (32, 24), (24, 16), (16, 16))),
    "MLP": (mlp, ((8, 16), (16, 32), (32, 16))),
    "FFN": (ffn, ((8, 16), (16, 32), (16, 32), (32, 16))),
    "two RMSNorms": (lambda x: rmsnorm(rmsnorm(x) + x), ROWS),
    "RMSNorm and softmax": (lambda x: rmsnorm(x).softmax(), ROWS),
    "norm and linear": (lambda x, w: rmsnorm(x) @ w, SQUARE),
    "linear and norm": (lambda x, w: rmsnorm(x @ w), SQUARE),
    "linear and softmax": (lambda x, w: (x @ w).softmax(), SQUARE),
    "norm, linear, norm": (lambda x, w: rmsnorm(rmsnorm(x) @ w), SQUARE),
    "transformer block": (block, ((8, 16), (16, 16), (16, 32), (32, 16))),
}

# what a user writes for a batch of a pattern that is not the same function with one axis more
TWINS: dict[str, Callable[..., Any]] = {
    "x*sum(x)": lambda x: x * x.sum(-1, keepdim=True),
    "sum(x).sqrt()": lambda x: x.sum((-2, -1)).sqrt(),
    "x-mean rows and columns": lambda x: x - x.mean(-2, keepdim=True) - x.mean(-1, keepdim=True),
    "GroupNorm": lambda x: standardize(x.reshape(*x.shape[:-1], 4, -1)).reshape(x.shape),
    "BatchNorm": lambda x: batchnorm(x, -2),
    "softmax of columns": lambda x: x.softmax(-2),
    "cross entropy": lambda x: -(x.log_softmax() * x.sigmoid()).sum(-1).mean(-1),
}

# pattern, batch -> target -> kernels under vmap and by hand if these differ, and why
DIFFERENT: dict[str, dict[str, list[int]]] = {
    # The gradient is a RESHAPE of what is computed, and its batch is its second axis. By hand that is a view of the
    # buffer that holds what is computed; under vmap the result is a buffer itself, and what is computed another one.
    "GroupNorm, second, backward": {"metal": [5, 6], "cuda": [5, 6], "c": [3, 2]},
    # By hand one more value is stored, because its readers compute it often. Under vmap their loops over the batch are
    # counted once, which is too little to be worth a kernel more.
    "transformer block, nested, backward": {"c": [12, 13]},
}

LARGE: dict[str, Pattern] = {
    "FFN (2048, 10240)": (ffn, ((1, 2048), (2048, 10240), (2048, 10240), (10240, 2048))),
    "FFN (2048, 16384)": (ffn, ((1, 2048), (2048, 16384), (2048, 16384), (16384, 2048))),
    "FFN of 32 tokens": (ffn, ((32, 2048), (2048, 10240), (2048, 10240), (10240, 2048))),
    "latent chain": (latent_chain, ((1, 2048), (2048, 4096), (4096, 3072), (3072, 2560), (2560, 2048))),
    "softmax": (lambda x: x.softmax(), ((256, 16384),)),
    "softmax of 256": (lambda x: x.softmax(), ((256, 256),)),
    "RMSNorm": (rmsnorm, ((32, 1024),)),
    "LayerNorm": (lambda x: x.layernorm(), ((1024, 768),)),
    "attention": (attention, ((8, 512, 64),) * 3),
    "linear and softmax": (lambda x, w: (x @ w).softmax(), ((64, 512), (512, 12000))),
}


def random_patterns(seed: int, number: int) -> dict[str, Pattern]:
    """Programs whose rows are LOCAL buffers or reduced in groups, of any width and of three dtypes: under, around and
    over the limits of all targets, one by one and together."""
    chooses = random.Random(seed)
    found: dict[str, Pattern] = {}
    for index in range(number):
        rows, dtype = chooses.choice((1, 1, 2, 3, 7)), chooses.choice(("float", "half", "double"))
        sizes = chooses.choice((range(500, 17000), range(512, 17000, 128), range(256, 6000, 64)))
        a, b, c = (chooses.choice(sizes) for _ in range(3))
        programs: dict[str, Pattern] = {
            "FFN": (ffn, ((rows, 64), (64, a), (64, a), (a, 64))),
            "latent chain": (latent_chain, ((rows, 64), (64, a), (a, b), (b, c), (c, 64))),
            "two chains": (two_chains, ((rows, 64), (64, a), (a, 96), (64, b), (b, 96))),
            "latent attention": (latent_attention, ((rows, 64), (64, a), (a, b), (a, 96), (64, b))),
            "RMSNorm": (rmsnorm, ((rows, a),)),
            "softmax": (lambda x: x.softmax(), ((rows, a),)),
            "softmax and norm": (lambda x: x.softmax().layernorm(), ((rows, a),)),
            "linear and softmax": (lambda x, w: (x @ w).softmax(), ((rows, 64), (64, a))),
            "norm, linear, norm": (lambda x, w: rmsnorm(rmsnorm(x) @ w), ((rows, a), (a, b))),
        }
        name = list(programs)[index % len(programs)]
        function, shapes = programs[name]
        found[f"{name} {index}: {shapes} {dtype}"] = (with_dtype(function, dtype), shapes)
    return found


def with_dtype(function: Callable[..., Any], dtype: str) -> Callable[..., Any]:
    return lambda *inputs: function(*[x.cast(dtype) for x in inputs])


TARGETS = {
    "metal": ("tinygrad.renderer.cstyle", "MetalRenderer", ()),
    "cuda": ("tinygrad.renderer.cstyle", "CUDARenderer", ("sm_80",)),
    "c": ("tinygrad.renderer.cstyle", "ClangRenderer", ()),
}

# the limits of LOCAL memory are theirs: 32,768 bytes and 49,152
LIMITED = {**TARGETS, "opencl": ("tinygrad.renderer.cstyle", "OpenCLRenderer", ())}
