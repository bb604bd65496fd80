"""A graph, written as a Python file and built again by it, has the same kernels and the same values.

A failure means that a reduced snippet, or a snippet of the fuzzer, does not show its fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scopes import LOOP, OUTER, make_range, numbers, varg_in, varg_out, vmap
from tinygrad import Tensor, UOp, dtypes, nn
from tinygrad.uop.ops import Ops

from vmapdbg.child.reduce.snippet_writer import WriteError, write_snippet

Build = Callable[[], Any]


def as_list(outputs: Any) -> list[Tensor]:
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


def build_again(text: str) -> list[Tensor]:
    """Runs a written file up to where it realizes its outputs, and returns them lazily."""
    head, _, rest = text.rpartition("\nTensor.realize(")
    space: dict[str, Any] = {}
    exec(compile(head, "written.py", "exec"), space)
    return [space[name] for name in rest.splitlines()[0].rstrip(")").split(", ")]


def kernel_keys(outputs: list[Tensor]) -> list[str]:
    return [item.ast.key.hex() for item in outputs[0].schedule(*outputs[1:])]


def check_round_trip(build: Build) -> str:
    outputs = as_list(build())
    text = write_snippet(outputs)
    again = build_again(text)
    assert write_snippet(again) == text
    twins = build_again(text)
    assert [(t.shape, t.dtype) for t in again] == [(t.shape, t.dtype) for t in outputs]
    assert kernel_keys(twins) == kernel_keys(as_list(build())), text
    for one, other in zip(outputs, again, strict=True):
        np.testing.assert_array_equal(one.float().numpy(), other.float().numpy(), err_msg=text)
    return text


X = numbers(4, 6)
W = numbers(6, 5, seed=2)


def x() -> Tensor:
    return Tensor(X).realize()


def w() -> Tensor:
    return Tensor(W).realize()


def nested() -> Tensor:
    rows, columns = make_range(4, -1), make_range(6, -2, OUTER)
    inner = x().vmapin((rows, UOp.const(dtypes.index, 0))).vmapin((columns,))
    return (inner * inner).vmapout((columns,)).sum().vmapout((rows,))


def by_range() -> Tensor:
    r = make_range(4, -1)
    padded = (x()[r] + 1).reshape(1, 6).pad(((r, 3 - r), None))
    return Tensor(padded.uop.reduce(r, arg=Ops.ADD))


def gradient() -> tuple[Tensor, ...]:
    a = x().requires_grad_()
    return tuple((a @ w()).relu().sum().gradient(a))


def convolved() -> Any:
    return Tensor(numbers(1, 2, 5, 5)).realize().conv2d(Tensor(numbers(3, 2, 3, 3)).realize()).relu().max_pool2d()


PROGRAMS: dict[str, Build] = {
    "softmax": lambda: x().softmax(),
    "lazy input": lambda: Tensor([[1.5, math.inf], [-math.inf, 0.1]]) + 1,
    "two outputs": lambda: (x().sum(0), x().max(1) * 2),
    "same output twice": lambda: (x() + 1, x() + 1),
    "an output that is a view": lambda: (x() * 2).T[1:],
    "scalars on both sides": lambda: (1.0 - x()) * 2.0 + 1.0 / (x() + 9),
    "compare": lambda: (x() < 0.5).where(x(), 3.0) + (x() != 1).cast(dtypes.float),
    "ints": lambda: ((Tensor([3, -7, 9]) // 2) % 4) ^ 5,
    "bools": lambda: (x() > 0).all(1).logical_not(),
    "small dtypes": lambda: (Tensor([1, 2, 3], dtype=dtypes.uint8) * 100, Tensor([1, 2], dtype=dtypes.int8).sum()),
    "half": lambda: x().half().sum(1) * 3,
    "bfloat16": lambda: x().cast(dtypes.bfloat16).realize() * 2,
    "casts": lambda: x().cast(dtypes.int64).cast(dtypes.bool).cast(dtypes.float16).bitcast(dtypes.uint16),
    "wider bitcast": lambda: Tensor([1, 2, 3, 4], dtype=dtypes.uint8).realize().bitcast(dtypes.uint32),
    "movement": lambda: x().permute(1, 0).flip(0).pad(((1, 2), (0, 1))).shrink(((1, 5), (0, 3))).reshape(2, 6),
    "pad with a value": lambda: x().pad((1, 1), value=2.0),
    "prod": lambda: x().prod(1),
    "reduce twice": lambda: (x() - x().mean(1, keepdim=True)).square().sum(),
    "constants only": lambda: Tensor.ones(3, 4).contiguous() * 2,
    "arange": lambda: Tensor.arange(10) * 3,
    "nan": lambda: Tensor([math.nan, 1.0]).realize() + math.nan,
    "empty": lambda: Tensor.empty(3, 4) * 0,
    "scalar input": lambda: Tensor([7.0]).realize().reshape(()) + 1,
    "detach": lambda: x().detach().contiguous().contiguous_backward() + 1,
    "one buffer, two shapes": lambda: (lambda a: a.reshape(6, 4).sum(1) + a.reshape(2, 12).sum())(x()),
    "assign": lambda: (lambda a: a.assign(a + 1) * 2)(x().contiguous().realize()),
    "rand": lambda: (Tensor.rand(1).realize(), Tensor.rand(5, 5) @ Tensor.rand(5))[1],
    "many numbers": lambda: Tensor(numbers(50, 60)).realize().sum(0),
    "matmul": lambda: (x() @ w()).silu(),
    "index": lambda: x()[[3, 1], 2:5],
    "setitem": lambda: (lambda a: (a.__setitem__((slice(1, 3), 2), 5.0), a)[1])(x() + 0),
    "sort": lambda: x()[:2].sort()[0],
    "conv": convolved,
    "gradient": gradient,
    "batchnorm": lambda: nn.BatchNorm(2)(Tensor(numbers(2, 2, 3, 3)).realize()),
    "vmap": lambda: vmap(lambda a: Tensor.stack(a[:3].sum(), a[3:].sum())[[0, 1]])(x()),
    "vmap outer": lambda: vmap(lambda a: a.softmax().contiguous() + 1, axis_id=-1, axis_type=OUTER)(x()),
    "vmap out axis": lambda: vmap(lambda a, b: a @ b, (0, None), 1, axis_type=LOOP)(x(), w()),
    "nested vmap": nested,
    "by range": by_range,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_written_graph_has_the_same_kernels_and_values(name: str) -> None:
    check_round_trip(PROGRAMS[name])


def test_switches_are_set_before_tinygrad_is_imported() -> None:
    text = write_snippet([Tensor.ones(2) + 1], {"PCONTIG": 2, "NOOPT": 1})
    assert text.splitlines()[:6] == [
        "import os",
        "",
        'os.environ["PCONTIG"] = "2"',
        'os.environ["NOOPT"] = "1"',
        "",
        "from tinygrad import Tensor, dtypes",
    ]


def test_what_a_reader_sees() -> None:
    """Plain Tensor code: numbers next to operators, sum without the RESHAPE, one name for what is read twice."""
    a = Tensor([[1.0, 2.5], [0.1, 4.0]]).realize()
    y = a * 2.0 + 1.0
    text = write_snippet([y.sum(1) - y.max()])
    assert text.splitlines() == [
        "from tinygrad import Tensor, dtypes",
        "",
        "x0 = Tensor([[1.0, 2.5], [0.1, 4.0]], dtype=dtypes.float).realize()",
        "t0 = (x0 * 2.0) + 1.0",
        "",
        "out = t0.sum(1) + (t0.max((0, 1)).reshape(1).expand(2) * -1.0)",
        "Tensor.realize(out)",
        'print("out", out.tolist())',
    ]


def test_scope_is_written_with_its_varg() -> None:
    r = make_range(4, -3)
    inner = x().vmapin(varg_in(r, 2, 0))
    text = write_snippet([(inner + 1).vmapout(varg_out(r, 1, 1))])
    assert "r0 = UOp.range(4, -3, AxisType.LOOP)" in text
    assert ".vmapin((r0, 0)) + 1.0).vmapout((0, r0))" in text


def test_an_unwritable_node_is_reported() -> None:
    sharded = x().shard(("CPU:0", "CPU:1"), 0) + 1
    with pytest.raises(WriteError, match="sharded over devices"):
        write_snippet([sharded])
    large = Tensor(np.random.default_rng(0).random((5 << 20,), dtype=np.float32)).realize() + 1
    with pytest.raises(WriteError, match=r"20,971,520 bytes is too large"):
        write_snippet([large])


def test_writing_changes_nothing() -> None:
    lazy = x() + 1
    before = lazy.uop
    write_snippet([lazy])
    assert lazy.uop is before
    assert not lazy.uop.is_realized


UNARY: list[Callable[[Tensor], Tensor]] = [
    lambda a: a * 2 - 1,
    lambda a: a.contiguous(),
    lambda a: a.flip(0),
    lambda a: a.exp2(),
    lambda a: (a > 0).where(a, a.sum()),
    lambda a: a + a.max(0, keepdim=True),
    lambda a: a.reshape(-1).pad((1, 2))[1:-2].reshape(a.shape),
]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(range(len(UNARY))), min_size=1, max_size=5), st.booleans())
def test_random_chains(steps: list[int], in_scope: bool) -> None:
    def chain(a: Tensor) -> Tensor:
        for step in steps:
            a = UNARY[step](a)
        return a

    r = make_range(4, -1)

    def build() -> Tensor:
        if not in_scope:
            return chain(x())
        return chain(x().vmapin(varg_in(r, 2, 0))).vmapout(varg_out(r, 1, 0))

    check_round_trip(build)
