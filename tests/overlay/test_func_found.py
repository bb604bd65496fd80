"""What random programs (`python -m tests.fuzz`) found, each made small: wrong values, crashes and hangs."""

from __future__ import annotations

import numpy as np
import pytest
from scopes import numbers, same
from tinygrad import Tensor
from tinygrad.func import vmap

METHODS = pytest.mark.parametrize("method", ["ranges", "pad_reduce"])
X = numbers(3, 4, dtype=np.float64)


@METHODS
def test_gradient_of_one_element_to_the_whole_batch_is_zero_in_the_other_elements(method: str) -> None:
    # it had the gradients of all elements in it
    x = Tensor(X)
    got = vmap(lambda e: e.square().sum().gradient(x)[0], in_axes=1, method=method)(x)
    same(got, [np.where(np.arange(4) == i, 2 * X, 0) for i in range(4)])


@METHODS
def test_gradient_to_the_whole_batch_from_two_scopes_in(method: str) -> None:
    x = Tensor(X)

    def row(e: Tensor) -> Tensor:
        return vmap(lambda s: (s.exp() * e.sum()).gradient(x)[0], method=method)(e)

    want = np.zeros((4, 3, 3, 4))
    for i, j in np.ndindex(4, 3):
        want[i, j, :, i] = np.exp(X[j, i])
        want[i, j, j, i] += np.exp(X[j, i]) * X[:, i].sum()
    same(vmap(row, in_axes=1, method=method)(x), want)


@METHODS
def test_gradient_to_the_whole_batch_is_indexed_after_a_stack(method: str) -> None:
    # codegen left an invalid index in the kernel
    x = Tensor(X[0])
    y = vmap(lambda e: e.square().gradient(x)[0], out_axes=1, method=method)(x)
    diagonal = np.diag(2 * X[0])
    same(Tensor.stack(y, y)[:, :, [1, 1]], np.stack([diagonal] * 2)[:, :, [1, 1]])


@METHODS
def test_setitem_in_a_batch_of_one_does_not_write_to_the_argument(method: str) -> None:
    def half_at_0(e: Tensor) -> Tensor:
        z = e * 1
        z[0] = 0.5
        return z

    x = Tensor(X[:1]).realize()
    same(vmap(half_at_0, method=method)(x), [[0.5, *X[0, 1:]]])
    same(x, X[:1])


@METHODS
def test_gradient_reads_the_sum_over_its_own_range(method: str) -> None:
    # with fusion the sum of pad_reduce and the gradient's loop over the same RANGE were one kernel, and codegen hung
    x = Tensor(numbers(3, 3, 3, dtype=np.float64))
    v = vmap(lambda e: e[Tensor([1, 2, 0])], in_axes=2, out_axes=1, method=method)(x)
    same(v.square().sum().gradient(x)[0], 2 * x.numpy())


def test_a_part_of_a_tensor_that_is_realized_with_it_keeps_its_shape() -> None:
    x = Tensor(numbers(3, 2, dtype=np.float64)).realize()
    y = x.sin()
    part = vmap(lambda e: e[0:2], in_axes=1, out_axes=1)(y)
    Tensor.realize(part, y)
    assert part.shape == (2, 2)
    same(part, np.sin(x.numpy())[:2])
