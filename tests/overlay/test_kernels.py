"""What a vmapped program costs: as many kernels as the program that a user batches by hand, and no copy at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scopes import OUTER, ZERO, assert_same, make_range, numbers, vmap
from tinygrad import Tensor, func
from tinygrad.engine.realize import ExecItem
from tinygrad.helpers import GlobalCounters
from tinygrad.uop.ops import Ops

BATCH = 5
Fn = Callable[[Tensor], Any]


def tensor(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(numbers(*shape, seed=seed)).realize()


W, V, K = tensor(6, 6, seed=1), tensor(6, seed=2), tensor(2, 1, 2, 2, seed=3)


def same(fn: Fn) -> tuple[Fn, Fn]:
    return fn, fn


# name -> the function of one element of shape (4, 6), and the same on the batch (5, 4, 6), written by hand
PROGRAMS: dict[str, tuple[Fn, Fn]] = {
    "elementwise": same(lambda x: x * 2 + V.sin()),
    "sum": (lambda x: x.sum(), lambda x: x.sum((1, 2))),
    "sum of an axis": (lambda x: x.sum(0), lambda x: x.sum(1)),
    "mean": (lambda x: x.mean(), lambda x: x.mean((1, 2))),
    "max": (lambda x: x.max(1), lambda x: x.max(2)),
    "matmul": same(lambda x: x @ W),
    "two matmuls": same(lambda x: (x @ W).relu() @ W),
    "softmax": same(lambda x: x.softmax()),
    "log_softmax": same(lambda x: x.log_softmax()),
    "layernorm": same(lambda x: x.layernorm()),
    "rmsnorm": same(lambda x: x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()),
    "std": (lambda x: x.std(), lambda x: x.std((1, 2))),
    "stack": (
        lambda x: Tensor.stack(x[0, :2].sum(), x[0, 2:].sum()),
        lambda x: Tensor.stack(x[:, 0, :2].sum(1), x[:, 0, 2:].sum(1), dim=1),
    ),
    "stack and index": (
        lambda x: Tensor.stack(x[0, :2].sum(), x[0, 2:].sum())[[0, 1]],
        lambda x: Tensor.stack(x[:, 0, :2].sum(1), x[:, 0, 2:].sum(1), dim=1)[:, [0, 1]],
    ),
    "matmul and index": (lambda x: (x @ W)[[0, 2]], lambda x: (x @ W)[:, [0, 2]]),
    "cumsum": (lambda x: x.cumsum(1), lambda x: x.cumsum(2)),
    "argmax": (lambda x: x.argmax(1), lambda x: x.argmax(2)),
    "attention": same(lambda x: x.scaled_dot_product_attention(x, x)),
    "conv2d": (lambda x: x.reshape(1, 1, 4, 6).conv2d(K), lambda x: x.reshape(BATCH, 1, 4, 6).conv2d(K).unsqueeze(1)),
    "max_pool2d": (
        lambda x: x.reshape(1, 1, 4, 6).max_pool2d(),
        lambda x: x.reshape(BATCH, 1, 4, 6).max_pool2d().unsqueeze(1),
    ),
    "contiguous": same(lambda x: (x * 2).contiguous() + 1),
    "pad and flip": (lambda x: x.pad(((1, 1), (0, 0))).flip(0), lambda x: x.pad(((0, 0), (1, 1), (0, 0))).flip(1)),
    # alone, the one by hand would be a view, which is not a kernel before it is read
    "flip": (lambda x: x.flip(0), lambda x: x.flip(1).contiguous()),
    "list index": (lambda x: x[[2, 0]] * 3, lambda x: x[:, [2, 0]] * 3),
    "outer product": (lambda x: x[0].unsqueeze(1) * x[1], lambda x: x[:, 0].unsqueeze(2) * x[:, 1].unsqueeze(1)),
    "log_softmax of a layer": same(lambda x: (x @ W).log_softmax()),
    "cat": (lambda x: Tensor.cat(x, x * 2, dim=0), lambda x: Tensor.cat(x, x * 2, dim=1)),
    "x*sum(x)": (lambda x: x * x.sum(1, keepdim=True), lambda x: x * x.sum(2, keepdim=True)),
}


def compute_kernels(result: Tensor) -> list[ExecItem]:
    """The kernels that `.numpy()` of a result runs, without copies between devices."""
    return [item for item in result.contiguous().schedule() if item.ast.op is Ops.SINK]


@pytest.mark.parametrize("mapped", [vmap, func.vmap], ids=["by vargs", "tinygrad.func"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_many_kernels_as_batched_by_hand(name: str, mapped: Callable[[Fn], Fn]) -> None:
    element, batch = PROGRAMS[name]
    x = tensor(BATCH, 4, 6)
    vmapped, by_hand = mapped(element)(x), batch(x)
    assert vmapped.shape == by_hand.shape
    assert len(compute_kernels(vmapped)) == len(compute_kernels(by_hand))
    assert_same(mapped(element)(x), batch(x))


@pytest.mark.parametrize("name", ["elementwise", "softmax", "stack and index"])
def test_outer_runs_each_kernel_once_for_each_element(name: str) -> None:
    element, batch = PROGRAMS[name]
    x = tensor(BATCH, 4, 6)
    by_hand = compute_kernels(batch(x))
    steps = compute_kernels(vmap(element, axis_type=OUTER)(x))
    assert len(steps) == BATCH * len(by_hand)
    assert len({item.ast.key for item in steps}) == len(by_hand)


@pytest.mark.parametrize("name", ["elementwise", "sum", "softmax", "stack and index"])
def test_the_batch_at_another_axis_costs_no_kernel(name: str) -> None:
    element, batch = PROGRAMS[name]
    x = tensor(BATCH, 4, 6)
    by_hand = batch(x)
    vmapped = vmap(element, out_axis=-1)(x)
    assert len(compute_kernels(vmapped)) == len(compute_kernels(by_hand))


@pytest.mark.parametrize("name", ["elementwise", "matmul", "softmax"])
def test_numpy_twice_runs_nothing_the_second_time(name: str) -> None:
    """A result that is realized stays realized."""
    element, _ = PROGRAMS[name]
    y = vmap(element)(tensor(BATCH, 4, 6)).realize()
    GlobalCounters.reset()
    first = y.numpy()
    assert GlobalCounters.kernel_count == 0
    np.testing.assert_array_equal(first, y.numpy())


def test_elementwise_after_the_scope_adds_no_kernel() -> None:
    x = tensor(BATCH, 4, 6)
    vmapped, by_hand = vmap(lambda a: a * 2)(x), x * 2
    for post in (lambda y: y + 1, lambda y: y.sum(), lambda y: y.sum(0), lambda y: y @ W, lambda y: y.T):
        assert len(compute_kernels(post(vmapped))) == len(compute_kernels(post(by_hand)))


# the inner VMAPOUT is realized as every VMAPOUT is, and with the row sum in its value its buffer is not removed
@pytest.mark.parametrize("name", ["elementwise", "softmax"])
def test_nested_scopes_cost_no_kernel(name: str) -> None:
    """A reduce as the last op of the inner scope costs one more, so it is not among these."""
    element, _ = PROGRAMS[name]
    x = tensor(3, 5, 4, 6)
    assert len(compute_kernels(vmap(vmap(element))(x))) == len(compute_kernels(element(x)))


def test_two_ranges_in_one_scope_cost_no_kernel() -> None:
    r, s = make_range(3), make_range(5)
    x = tensor(3, 5, 6)
    inner = (x.vmapin((r, s, ZERO)) @ W).sum()
    assert len(compute_kernels(inner.vmapout((r, s)))) == len(compute_kernels((x @ W).sum(-1)))


def blocks(x: Tensor) -> Tensor:
    """Blocks of each row are standardized, and are rows again: (..., 4, 6) -> (..., 4, 6)."""
    centred = x.reshape(*x.shape[:-1], 2, 3)
    centred = centred - centred.mean(-1, keepdim=True)
    return (centred / (centred.square().mean(-1, keepdim=True).sqrt() + 1)).reshape(x.shape)


@pytest.mark.parametrize("levels", [1, 2])
def test_an_output_that_is_a_reshape_costs_no_kernel(levels: int) -> None:
    """As by hand, the RESHAPE is a view of the buffer, which has the axes that the value is computed on."""
    x = tensor(3, 5, 4, 6)[0] if levels == 1 else tensor(3, 5, 4, 6)
    mapped = vmap(blocks) if levels == 1 else vmap(vmap(blocks))
    assert len(mapped(x).schedule()) == len(blocks(x).schedule())
    assert_same(mapped(x), blocks(x))


@pytest.mark.parametrize(
    "element",
    [
        lambda x: (blocks(x).reshape(24), x.softmax()),
        lambda x: (x.softmax().reshape(24), x.softmax()),
        lambda x: (x.softmax().reshape(24), x.softmax().reshape(2, 12)),
        lambda x: (x.softmax().reshape(24), x.softmax().sum(0)),
        lambda x: (x.reshape(24), x.sum(1, keepdim=True).expand(4, 6).reshape(24)),
    ],
    ids=["two values", "one value", "two reshapes", "used in the scope", "no value of its own"],
)
def test_outputs_that_are_reshapes_and_others(element: Callable[[Tensor], tuple[Tensor, ...]]) -> None:
    x = tensor(BATCH, 4, 6)
    steps = [[y.numpy() for y in element(x[i])] for i in range(BATCH)]
    expected = tuple(np.stack(each) for each in zip(*steps, strict=True))
    results = vmap(element, out_axis=(0, 0))(x)
    Tensor.realize(*results)
    assert_same(results, expected)
    # its later views read the same memory
    assert_same(tuple(y + 1 for y in results), tuple(y + 1 for y in expected))
