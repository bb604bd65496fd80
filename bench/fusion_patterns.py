"""Patterns of reduce, broadcast and elementwise at real sizes, and the process that runs them for `bench.fusion`.

As a module: name -> (function, shapes of its inputs). As a program, `python -m bench.fusion_patterns`, it answers what
`bench.answers` says, of a pattern or of a program of `bench.own_programs`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from bench import own_programs
from bench.answers import answer_requests

Shapes = tuple[tuple[int, ...], ...]

EPSILON = 1e-5


def rmsnorm(x: Any) -> Any:
    return x * (x.square().mean(-1, keepdim=True) + EPSILON).rsqrt()


def rmsnorm_linear(x: Any, w: Any) -> Any:
    return rmsnorm(x) @ w


def mlp(x: Any, a: Any, b: Any, c: Any) -> Any:
    return ((x @ a).silu() * (x @ b)) @ c


def attention(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax() @ v


def causal_attention(q: Any, k: Any, v: Any) -> Any:
    return q.scaled_dot_product_attention(k, v, is_causal=True)


def softmax_backward(x: Any, g: Any) -> Any:
    y = x.softmax()
    return y * (g - (g * y).sum(-1, keepdim=True))


def logsumexp_loss(x: Any) -> Any:
    return (x - x.exp().sum(-1, keepdim=True).log()).square().mean()


PATTERNS: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "softmax": (lambda x: x.softmax(), ((1024, 1024),)),
    "RMSNorm": (rmsnorm, ((1024, 1024),)),
    "RMSNorm, long rows": (rmsnorm, ((64, 16384),)),
    "LayerNorm": (lambda x: x.layernorm(), ((1024, 1024),)),
    "log_softmax": (lambda x: x.log_softmax(), ((1024, 1024),)),
    "x*sum(x), one row": (lambda x: x * x.sum(), ((1 << 20,),)),
    "attention": (attention, ((4, 256, 64),) * 3),
    "causal attention": (causal_attention, ((1, 4, 256, 64),) * 3),
    "RMSNorm, linear": (rmsnorm_linear, ((256, 512), (512, 512))),
    "linear, RMSNorm": (lambda x, w: rmsnorm(x @ w), ((256, 512), (512, 512))),
    "MLP, three matmuls": (mlp, ((64, 256), (256, 512), (256, 512), (512, 256))),
    "two RMSNorms": (lambda x: rmsnorm(rmsnorm(x) + x), ((1024, 1024),)),
    "softmax backward": (softmax_backward, ((512, 1024),) * 2),
    "logsumexp loss": (logsumexp_loss, ((1024, 1024),)),
}


def prepare(name: str) -> tuple[Callable[[], None], int]:
    """Returns what runs a pattern or program once, compiled, and how many kernels that are."""
    from tinygrad import GlobalCounters

    run = own_programs.make(own_programs.OWN.get(name, functools.partial(make_pattern, name)))
    GlobalCounters.reset()
    run()  # the first call runs kernel by kernel, the later ones as one graph
    kernels = GlobalCounters.kernel_count
    for _ in range(2):
        run()
    return run, kernels


def make_pattern(name: str) -> own_programs.Run:
    from tinygrad import Tensor

    function, shapes = PATTERNS[name]
    return own_programs.compile_calls(function, *(Tensor.rand(*shape).realize() for shape in shapes))


if __name__ == "__main__":
    answer_requests(prepare)
