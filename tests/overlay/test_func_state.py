"""Functions that write: to a tensor of their own, which is a value, and to one from outside, which is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scopes import numbers, same
from tinygrad import Tensor, nn
from tinygrad.func import hessian, jacfwd, jacobian, jacrev, jvp, vmap
from tinygrad_overlay.schedule._scopes import VmapScopeError

Function = Callable[[Tensor], Tensor]
X = numbers(3, dtype=np.float64)


def assigned(x: Tensor) -> Tensor:
    y = x * 1
    y.assign(x * x)
    return y


def added_in_place(x: Tensor) -> Tensor:
    y = (x * 1).contiguous()
    y += x * x
    return y


def set_slice(x: Tensor) -> Tensor:
    y = (x * x).contiguous()
    y[1:2] = x[0:1] * 5
    return y


def set_in_zeros(x: Tensor) -> Tensor:
    y = Tensor.zeros(3, dtype=x.dtype).contiguous()
    y[1:2] = x[0:1] * 5
    return y


def set_by_list(x: Tensor) -> Tensor:
    y = (x * 1).contiguous()
    y[Tensor([0, 2])] = x[0:2].exp()
    return y


FUNCTIONS: dict[str, tuple[Function, Any]] = {
    "clone": (lambda x: x.clone() * 3 + x, 4 * np.eye(3)),
    "clone of the result": (lambda x: (x * x).clone(), np.diag(2 * X)),
    "clone and assign": (lambda x: x.clone().assign(x.sin()), np.diag(np.cos(X))),
    "assign": (assigned, np.diag(2 * X)),
    "+=": (added_in_place, np.diag(1 + 2 * X)),
    "setitem": (set_slice, [[2 * X[0], 0, 0], [5, 0, 0], [0, 0, 2 * X[2]]]),
    "setitem of a constant": (set_in_zeros, [[0, 0, 0], [5, 0, 0], [0, 0, 0]]),
    "setitem by a list": (set_by_list, [[np.exp(X[0]), 0, 0], [0, 1, 0], [0, np.exp(X[1]), 0]]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_write_to_a_tensor_of_its_own_has_a_derivative(name: str) -> None:
    """For one input, and for each element of a batch."""
    fn, want = FUNCTIONS[name]
    for derivative in (jacfwd(fn), jacrev(fn), lambda x: jacobian(fn, x, mode="rev")):
        same(derivative(Tensor(X)), want)
    same(vmap(jacrev(fn), in_axes=1)(Tensor(X).reshape(3, 1).expand(3, 2)), [want, want])


def test_second_derivatives_go_through_a_clone() -> None:
    same(hessian(lambda x: (x**3).clone().sum())(Tensor(X)), np.diag(6 * X))


def test_a_gradient_inside_of_a_scope_goes_through_an_assign() -> None:
    """The other way to the input hid it: 1 in place of 2x + 1."""

    def gradient(x: Tensor) -> Tensor:
        return (assigned(x) + x).sum().gradient(x)[0]

    rows = numbers(2, 3, dtype=np.float64)
    same(vmap(gradient)(Tensor(rows)), 2 * rows + 1)


OUTSIDE: dict[str, Callable[[], Tensor]] = {
    "a buffer": lambda: Tensor(X).contiguous().realize(),
    "a constant": lambda: Tensor.zeros(3, dtype="double"),
    "a lazy value": lambda: Tensor(X) * 2,
    "a pending assign": lambda: Tensor(X).contiguous().realize().assign(Tensor(X) + 1),
}


@pytest.mark.parametrize("make", OUTSIDE.values(), ids=OUTSIDE)
@pytest.mark.parametrize(
    "write",
    [lambda t, v: t.assign(v), lambda t, v: t.__iadd__(v), lambda t, v: t.__setitem__(slice(0, 1), v[0:1])],
    ids=["assign", "+=", "setitem"],
)
def test_a_write_to_a_tensor_from_outside_is_refused_at_the_call(make: Callable[[], Tensor], write: Any) -> None:
    """It was accepted, and the tensor could not be read afterwards."""
    target = make()
    want = target.numpy()
    target = make()

    def writes(v: Tensor) -> Tensor:
        write(target, v)
        return v

    message = r"to a tensor of shape \(3,\) that has no value for each element of the vmap scope of size 2"
    with pytest.raises(VmapScopeError, match=message):
        vmap(writes)(Tensor(numbers(2, 3, dtype=np.float64)))
    for derivative in (jacfwd(writes), jacrev(writes), lambda x: jvp(writes, (x,), (x,))):
        with pytest.raises(RuntimeError, match=r"to a tensor of shape \(3,\) from outside of a function that is"):
            derivative(Tensor(X))
    same(target, want)


def test_batch_norm_in_training_is_refused_and_keeps_its_state() -> None:
    norm = nn.BatchNorm(2)
    with Tensor.train(), pytest.raises(VmapScopeError, match=r"assign to a tensor of shape \(2,\) that has no value"):
        vmap(norm)(Tensor.ones(3, 1, 2, 2, 2))
    assert norm.running_mean.tolist() == [0.0, 0.0]


def test_the_outer_function_may_write_to_its_own_tensor_while_an_inner_one_runs() -> None:
    """It is from outside of the inner function alone, and holds no value of that."""

    def outer(x: Tensor) -> Tensor:
        total = x * 1

        def inner(s: Tensor) -> Tensor:
            total.assign(x * x)
            return s + 1

        return vmap(inner)(x) + total

    rows = numbers(2, 3, dtype=np.float64)
    same(vmap(outer)(Tensor(rows)), rows + 1 + rows * rows)


def test_what_does_not_depend_on_the_inputs_is_written_as_always() -> None:
    counter = Tensor.zeros(1).contiguous().realize()

    def counting(x: Tensor) -> Tensor:
        counter.assign(counter + 1).realize()
        return x * x

    same(jacrev(counting)(Tensor(X)), np.diag(2 * X))
    assert counter.tolist() == [1.0]


def test_another_thread_is_not_inside_of_the_function() -> None:
    """Its random numbers were refused."""
    drawn: list[str] = []

    def draw() -> None:
        drawn.append(str(Tensor.rand(3).shape))

    def waiting(x: Tensor) -> Tensor:
        thread = threading.Thread(target=draw)
        thread.start()
        thread.join()
        return x

    vmap(waiting)(Tensor.ones(2, 2))
    assert drawn == ["(3,)"]


def fill(v: Tensor) -> Tensor:
    made = Tensor.empty(2, dtype=v.dtype)
    made.assign(v * 2)
    return made


def fill_items(v: Tensor) -> Tensor:
    made = Tensor.empty(2, dtype=v.dtype)
    made[0:1], made[1:2] = v[1:2], v[0:1] * 3
    return made


def test_memory_that_the_function_makes_can_be_written() -> None:
    """It was refused, as a tensor "from outside the vmap scope"."""
    x = numbers(3, 2, dtype=np.float64)
    same(vmap(fill)(Tensor(x)), x * 2)
    same(vmap(vmap(lambda v: fill(v.expand(2)).sum()))(Tensor(x)), x * 4)
    same(vmap(fill_items)(Tensor(x)), np.stack([x[:, 1], x[:, 0] * 3], 1))
    for derivative in (jacfwd, jacrev):
        same(derivative(fill)(Tensor(x[0])), np.eye(2) * 2)
        same(derivative(fill_items)(Tensor(x[0])), np.array([[0.0, 1.0], [3.0, 0.0]]))

    def write_view(v: Tensor) -> Tensor:
        made = Tensor.empty(2, dtype=v.dtype)
        made.reshape(1, 2).assign(v.reshape(1, 2))
        return made

    with pytest.raises(VmapScopeError, match="has no value for each element of the vmap scope"):
        vmap(write_view)(Tensor(x))

    def write_realized(v: Tensor) -> Tensor:
        made = Tensor.zeros(2, dtype=v.dtype).contiguous().realize()
        return made.assign(v)

    with pytest.raises(VmapScopeError, match="has no value for each element of the vmap scope"):
        vmap(write_realized)(Tensor(x))
