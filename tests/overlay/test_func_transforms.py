"""`grad`, `value_and_grad`, `vjp`, `linearize`, aux, numbers, numpy arrays, trees, and vmap's chunks,
random numbers and empty batches."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from refusals import check_refusal
from scopes import numbers, same
from tinygrad import Tensor, TinyJit, dtypes, nn
from tinygrad.func import (
    grad,
    hessian,
    jacfwd,
    jacobian,
    jacrev,
    jvp,
    linearize,
    register_pytree,
    sparse_jacobian,
    value_and_grad,
    vjp,
    vmap,
)
from tinygrad.uop.ops import AxisType, Ops, UOp
from tinygrad_overlay._state import FIRST_PADDED_ID
from tinygrad_overlay.schedule._scopes import VmapScopeError, count_nested

A, B = numbers(3, 4, dtype=np.float64), numbers(3, 4, dtype=np.float64, seed=1)
V = numbers(4, dtype=np.float64, seed=2)
METHODS = pytest.mark.parametrize("method", ["ranges", "pad_reduce"])


def loss(w: Tensor, x: Tensor) -> Tensor:
    return (w * x).sin().sum()


# *** reverse


def test_the_gradient_of_each_argument() -> None:
    w, x = Tensor(A), Tensor(B)
    of_w, of_x = B * np.cos(A * B), A * np.cos(A * B)
    same(grad(loss)(w, x), of_w)
    same(grad(loss, argnums=-1)(w, x), of_x)
    for argnums in ((1, 0), [1, 0]):
        got = grad(loss, argnums=argnums)(w, x)
        same(got[0], of_x)
        same(got[1], of_w)
    value, got = value_and_grad(loss)(w, x)
    same(value, np.sin(A * B).sum())
    same(got, of_w)


def test_the_gradient_has_the_structure_of_its_argument_and_zeros_where_nothing_depends() -> None:
    got = grad(lambda p: (p["w"] * p["w"]).sum())({"w": Tensor(A), "unused": [Tensor(V)]})
    same(got["w"], 2 * A)
    same(got["unused"][0], 0 * V)


def test_the_gradient_for_each_element_of_a_batch() -> None:
    same(vmap(grad(loss))(Tensor(A), Tensor(B)), B * np.cos(A * B))
    same(vmap(grad(loss), in_axes=(None, 0))(Tensor(V), Tensor(B)), B * np.cos(V * B))


def test_gradients_of_gradients() -> None:
    def cube(x: Tensor) -> Tensor:
        return (x**3).sum()

    same(grad(lambda x: grad(cube)(x).sum())(Tensor(V)), 6 * V)
    same(jacfwd(grad(cube))(Tensor(V)), np.diag(6 * V))


def test_aux_is_returned_as_it_is() -> None:
    def with_aux(x: Tensor) -> tuple[Tensor, dict[str, Any]]:
        return (x * x).sum(), {"twice": x * 2, "name": "aux"}

    x = Tensor(V)
    (value, first), got = value_and_grad(with_aux, has_aux=True)(x)
    same(value, (V * V).sum())
    same(got, 2 * V)
    _, slope, second = jvp(with_aux, (x,), (x,), has_aux=True)
    same(slope, (2 * V * V).sum())
    _, back, third = vjp(with_aux, x, has_aux=True)
    same(back(3.0)[0], 6 * V)
    _, along, fourth = linearize(with_aux, x, has_aux=True)
    same(along(x), (2 * V * V).sum())
    rest = []
    for transform, want in ((grad, 2 * V), (jacrev, 2 * V), (jacfwd, 2 * V), (hessian, 2 * np.eye(4))):
        got, aux = transform(with_aux, has_aux=True)(x)
        same(got, want)
        rest.append(aux)
    for aux in (first, second, third, fourth, *rest):
        assert aux["name"] == "aux"
        same(aux["twice"], 2 * V)


def test_vjp_pulls_a_cotangent_of_each_result_back() -> None:
    def fn(w: Tensor, x: Tensor) -> dict[str, Tensor]:
        return {"product": w * x, "sum": w.sum(1), "above": x > 0}

    out, back = vjp(fn, Tensor(A), Tensor(B))
    same(out["product"], A * B)
    cotangent = {"product": Tensor(B), "sum": Tensor(A[:, 0].copy()), "above": out["above"]}
    with pytest.raises(TypeError, match=r"vjp: result\['above'\] of shape \(3, 4\) is bool"):
        back(cotangent)
    _, back = vjp(lambda w, x: (w * x, w.sum(1)), Tensor(A), Tensor(B))
    of_w, of_x = back((Tensor(B), Tensor(A[:, 0].copy())))
    same(of_w, B * B + A[:, :1])
    same(of_x, B * A)
    again, _ = back((Tensor(A), Tensor(0 * A[:, 0])))
    same(again, A * B)


def test_linearize_calls_the_function_once() -> None:
    calls = []

    def fn(w: Tensor, x: Tensor) -> Tensor:
        calls.append(1)
        return (w * x).exp()

    value, along = linearize(fn, Tensor(A), Tensor(B))
    same(value, np.exp(A * B))
    for t in (A, B):
        same(along(Tensor(t), Tensor(2 * t)), np.exp(A * B) * (t * B + 2 * t * A))
    assert calls == [1]


def test_the_derivatives_under_jit() -> None:
    step = TinyJit(lambda w, x: w - 0.1 * grad(loss)(w, x))
    for i in range(4):
        w, x = numbers(3, 4, dtype=np.float64, seed=i), numbers(3, 4, dtype=np.float64, seed=9 + i)
        same(step(Tensor(w).realize(), Tensor(x).realize()), w - 0.1 * x * np.cos(w * x))


# *** what is taken as a Tensor


def test_numbers_and_numpy_arrays_are_tensors() -> None:
    assert grad(lambda x: x * x)(3.0).item() == 6.0
    assert grad(lambda x: x * x)(np.float64(3)).dtype == dtypes.float64
    value, slope = jvp(lambda x: (x * x).sum(), (V,), (V,))
    same(value, (V * V).sum())
    same(slope, (2 * V * V).sum())
    same(jacobian(lambda x: x * x, V), np.diag(2 * V))
    same(vmap(lambda x: x * 2)(A), 2 * A)
    same(vmap(lambda x, y: x * Tensor(y), in_axes=(0, None))(A, V), A * V)
    got = vmap(lambda x: (1.5, np.arange(2), True))(A)
    assert [y.tolist() for y in got] == [[1.5] * 3, [[0, 1]] * 3, [True] * 3]


class Box:
    def __init__(self, inner: Any, label: str) -> None:
        self.inner = inner
        self.label = label


@dataclass(frozen=True)
class State:
    p: Tensor
    v: Any
    name: str = field(default="state", metadata={"static": True})


def test_dataclasses_registered_classes_and_dicts_of_other_kinds_are_trees() -> None:
    register_pytree(Box, lambda b: ((b.inner,), b.label), lambda label, inner: Box(inner[0], label))
    with pytest.raises(ValueError, match="register_pytree: Box is known already"):
        register_pytree(Box, lambda b: ((), None), lambda rest, children: rest)
    with pytest.raises(ValueError, match="known already"):
        register_pytree(OrderedDict, lambda b: ((), None), lambda rest, children: rest)
    with pytest.raises(TypeError, match="3 is no class"):
        register_pytree(3, lambda b: ((), None), lambda rest, children: rest)  # pyright: ignore[reportArgumentType]

    def move(s: State, b: Box) -> dict[str, Any]:
        assert s.p.shape == (4,)
        assert (s.name, b.label) == ("mine", "box")
        ordered: OrderedDict[str, Tensor] = OrderedDict(z=s.p, a=s.v)
        return {"state": State(s.p + s.v, s.v * 2, "new"), "box": Box([b.inner], "out"), "ordered": ordered}

    got = vmap(move)(State(Tensor(A), Tensor(B), "mine"), Box(Tensor(A), "box"))
    assert isinstance(got["state"], State)
    assert got["state"].name == "new"
    same(got["state"].p, A + B)
    assert got["box"].label == "out"
    same(got["box"].inner[0], A)
    assert list(got["ordered"]) == ["z", "a"]
    same(got["ordered"]["z"], A)
    axes = vmap(lambda s: s.p * s.v, in_axes=(State(0, None),))(State(Tensor(A), Tensor(V)))  # pyright: ignore
    same(axes, A * V)
    of_state = grad(lambda s: (s.p * s.v).sum())(State(Tensor(A), Tensor(B)))
    same(of_state.v, A)
    groups = vmap(lambda x: defaultdict(list, {"x": x}))(Tensor(A))
    assert groups["nothing"] == []
    # an argument that is not mapped is passed on as the same object
    settings = State(V, "plain")  # pyright: ignore[reportArgumentType]
    assert vmap(lambda x, s: x * (s is settings), in_axes=(0, None))(A, settings).shape == (3, 4)


def test_a_sparse_jacobian_for_each_element_has_the_values_of_all() -> None:
    got = vmap(lambda x: sparse_jacobian(lambda v: v * v, x))(Tensor(A))
    assert got.shape == (4, 4)
    same(got.values, 2 * A)


# *** vmap's options


@METHODS
@pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
def test_a_batch_in_chunks_has_the_same_results(size: int, method: str) -> None:
    x, y = numbers(7, 4, dtype=np.float64), numbers(4, 7, dtype=np.float64, seed=3)
    sizes = []

    def fn(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sizes.append(1)
        return a * b + c, (a * b).sum(), c * 2

    mapped = vmap(fn, in_axes=(0, 1, None), out_axes=(-1, 0, None), chunk_size=size, method=method)
    got = mapped(Tensor(x), Tensor(y), Tensor(V))
    same(got[0], (x * y.T + V).T)
    same(got[1], (x * y.T).sum(1))
    same(got[2], V * 2)
    assert len(sizes) == -(-7 // size)
    same(jacfwd(lambda v: v * v, chunk_size=size)(Tensor(V)), np.diag(2 * V))
    same(jacrev(lambda v: v * v, chunk_size=size)(Tensor(V)), np.diag(2 * V))


@METHODS
def test_random_numbers_differ_for_each_element_or_are_the_same_for_all(method: str) -> None:
    def noisy(x: Tensor) -> Tensor:
        return x + Tensor.randn(4)

    x = Tensor.zeros(5, 4)
    own = vmap(noisy, randomness="different", method=method)(x).numpy()
    assert len(np.unique(own)) == 20
    shared = vmap(noisy, randomness="same", method=method)(x).numpy()
    assert len(np.unique(shared)) == 4
    assert (shared == shared[0]).all()
    with pytest.raises(VmapScopeError, match=r"Tensor\.randn draws random numbers of shape \(4,\).*or say randomness="):
        vmap(noisy, method=method)(x)


def test_random_numbers_in_nested_batches() -> None:
    def outer(inner: str) -> Callable[[Tensor], Tensor]:
        return lambda row: vmap(lambda x: x + Tensor.rand(2), randomness=inner)(row)

    x = Tensor.zeros(3, 4, 2)
    each = vmap(outer("different"), randomness="different")(x).numpy()
    assert len(np.unique(each)) == 24
    rows = vmap(outer("same"), randomness="different")(x).numpy()
    assert len(np.unique(rows)) == 6
    assert (rows == rows[:, :1]).all()
    with pytest.raises(VmapScopeError, match="maps over 3 elements"):
        vmap(outer("same"))(x)


def dropout(v: Tensor) -> Tensor:
    with Tensor.train():
        return v.dropout(0.5)


# method -> shape that it draws -> call
RANDOM: dict[str, dict[tuple[int, ...], Callable[[Tensor], Any]]] = {
    "rand": {
        (4,): lambda v: v + Tensor.rand(4),
        (2, 4): lambda v: v + Tensor.rand((2, 4)),
        (): lambda v: v + Tensor.rand(()),
    },
    "randn": {(4,): lambda v: v + Tensor.randn(4)},
    "rand_like": {(4,): Tensor.rand_like},
    "randn_like": {(4,): lambda v: v.randn_like()},
    "dropout": {(4,): dropout},
    "randint": {(2, 4): lambda v: v + Tensor.randint(2, 4)},
    "uniform": {(4,): lambda v: v + Tensor.uniform(4), (2, 4): lambda v: nn.Linear(4, 2)(v)},
    "normal": {(2, 4): lambda v: v + Tensor.normal(2, 4)},
    "randperm": {(4,): lambda v: v[Tensor.randperm(4)]},
    "kaiming_uniform": {(4, 2): lambda v: v @ Tensor.kaiming_uniform(4, 2)},
    "multinomial": {(1, 1, 1): lambda v: v.softmax().multinomial()},
}


@pytest.mark.parametrize("method", RANDOM)
def test_a_random_call_names_the_method_that_was_called(method: str) -> None:
    for shape, fn in RANDOM[method].items():
        where = f"of shape {shape} inside a function that vmap maps over 3 elements"
        sentence = f"Tensor.{method} draws ... {where} ... draw shape {(3, *shape)} before the vmap"
        check_refusal(VmapScopeError, sentence, lambda fn=fn: vmap(fn)(Tensor(A)))
    # an error leaves nothing behind
    same(vmap(lambda v: v * 2)(Tensor(A)), A * 2)
    Tensor.rand(2).realize()


def test_a_random_call_is_named_right_after_another_error() -> None:
    """tinygrad keeps the name of the method that raised; what is called next must not get it."""
    with pytest.raises(VmapScopeError, match=r"Tensor\.randn draws"):
        vmap(lambda v: Tensor.randn(4))(Tensor(A))
    with pytest.raises(ValueError, match="size mismatch"):
        Tensor(A).reshape(7)
    with pytest.raises(VmapScopeError, match=r"Tensor\.rand draws"):
        vmap(lambda v: Tensor.rand(4))(Tensor(A))


def test_dropout_without_training_and_earlier_random_numbers_are_not_random_calls() -> None:
    noise = Tensor.rand(3, 4)
    same(vmap(lambda v, n: v.dropout(0.5) + n)(Tensor(A), noise), A + noise.numpy())


def test_dropout_for_each_element() -> None:
    with Tensor.train():
        got = vmap(lambda x: x.dropout(0.5), randomness="different")(Tensor.ones(64, 32)).numpy()
    assert set(np.unique(got)) == {0.0, 2.0}
    assert len(np.unique(got, axis=0)) > 60


@METHODS
def test_a_batch_of_no_elements(method: str) -> None:
    def fn(x: Tensor, w: Tensor) -> dict[str, Tensor]:
        return {"row": x @ w, "sum": x.sum(), "w": w}

    out_axes = {"row": -1, "sum": 0, "w": None}
    mapped = vmap(fn, in_axes=(1, None), out_axes=out_axes, method=method)
    got = mapped(Tensor.zeros(4, 0), Tensor.ones(4, 5))
    assert (got["row"].shape, got["sum"].shape, got["w"].shape) == ((5, 0), (0,), (4, 5))
    assert got["row"].numpy().shape == (5, 0)
    assert jacfwd(lambda x: x * 2)(Tensor.zeros(0)).shape == (0, 0)
    assert jacrev(lambda x: x * 2)(Tensor.zeros(0)).shape == (0, 0)


def test_a_value_that_escapes_its_scope_says_so() -> None:
    kept = []
    vmap(lambda x: (kept.append(x * 2), x)[1])(Tensor(A))
    with pytest.raises(VmapScopeError, match=r"was made inside a function that vmap mapped \(size 3\), and kept"):
        kept[0].numpy()


@pytest.mark.parametrize("name", ["one_hot", "svd", "TinyJit"])
def test_who_realizes_a_value_of_the_batch_is_named(name: str) -> None:
    calls: dict[str, tuple[Callable[[Tensor], Any], Tensor]] = {
        "one_hot": (lambda x: x.one_hot(), Tensor([[1, 2], [0, 1]])),
        "svd": (lambda x: x.svd()[1], Tensor.ones(2, 3, 3)),
        "TinyJit": (TinyJit(lambda x: (x * 2).realize()), Tensor(A)),
    }
    fn, x = calls[name]
    with pytest.raises(VmapScopeError, match=rf"{name} realizes it; leave the scope first"):
        vmap(fn)(x)


# *** what random programs (`python -m tests.fuzz`) found, each made small: wrong values, crashes and hangs


@METHODS
def test_gradient_of_one_element_to_the_whole_batch_is_zero_in_the_other_elements(method: str) -> None:
    # it had the gradients of all elements in it
    x = Tensor(A)
    got = vmap(lambda e: e.square().sum().gradient(x)[0], in_axes=1, method=method)(x)
    same(got, [np.where(np.arange(4) == i, 2 * A, 0) for i in range(4)])


@METHODS
def test_gradient_to_the_whole_batch_from_two_scopes_in(method: str) -> None:
    x = Tensor(A)

    def row(e: Tensor) -> Tensor:
        return vmap(lambda s: (s.exp() * e.sum()).gradient(x)[0], method=method)(e)

    want = np.zeros((4, 3, 3, 4))
    for i, j in np.ndindex(4, 3):
        want[i, j, :, i] = np.exp(A[j, i])
        want[i, j, j, i] += np.exp(A[j, i]) * A[:, i].sum()
    same(vmap(row, in_axes=1, method=method)(x), want)


@METHODS
def test_gradient_to_the_whole_batch_is_indexed_after_a_stack(method: str) -> None:
    # codegen left an invalid index in the kernel
    x = Tensor(A[0])
    y = vmap(lambda e: e.square().gradient(x)[0], out_axes=1, method=method)(x)
    diagonal = np.diag(2 * A[0])
    same(Tensor.stack(y, y)[:, :, [1, 1]], np.stack([diagonal] * 2)[:, :, [1, 1]])


@METHODS
def test_setitem_in_a_batch_of_one_does_not_write_to_the_argument(method: str) -> None:
    def half_at_0(e: Tensor) -> Tensor:
        z = e * 1
        z[0] = 0.5
        return z

    x = Tensor(A[:1]).realize()
    same(vmap(half_at_0, method=method)(x), [[0.5, *A[0, 1:]]])
    same(x, A[:1])


@METHODS
def test_gradient_reads_the_sum_over_its_own_range(method: str) -> None:
    # with fusion the sum of pad_reduce and the gradient's loop over the same RANGE were one kernel, and codegen hung
    x = Tensor(numbers(3, 3, 3, dtype=np.float64))
    v = vmap(lambda e: e[Tensor([1, 2, 0])], in_axes=2, out_axes=1, method=method)(x)
    same(v.square().sum().gradient(x)[0], 2 * x.numpy())


@METHODS
def test_a_gradient_through_a_divisor_reads_sums_over_its_own_range(method: str) -> None:
    """With pad_reduce, REDUCEs over the RANGE are nested in one kernel. Over one loop the inner sum would be of one
    element."""
    x = Tensor(numbers(3, 3, 3, dtype=np.float64))
    v = vmap(lambda e: e / e.square().sum(), method=method)(x)
    squares = np.square(x.numpy()).sum((1, 2), keepdims=True)
    same(v.square().sum().gradient(x)[0], -2 * x.numpy() / squares**2)


def test_a_part_of_a_tensor_that_is_realized_with_it_keeps_its_shape() -> None:
    x = Tensor(numbers(3, 2, dtype=np.float64)).realize()
    y = x.sin()
    part = vmap(lambda e: e[0:2], in_axes=1, out_axes=1)(y)
    Tensor.realize(part, y)
    assert part.shape == (2, 2)
    same(part, np.sin(x.numpy())[:2])


def test_reduces_over_one_range_are_counted_by_how_deep_they_are_nested() -> None:
    """A level of its own for each depth: with one level for all, an inner sum would share the loop of an outer sum."""
    scope = UOp.range(4, FIRST_PADDED_ID, AxisType.REDUCE)
    inner = UOp(Ops.REDUCE, dtypes.index, (scope, scope), Ops.ADD)
    outer = UOp(Ops.REDUCE, dtypes.index, (inner + scope, scope), Ops.ADD)
    nested, reused = count_nested((outer + inner + scope).toposort())
    assert (nested[inner], nested[outer], nested[outer + inner]) == ({scope: 1}, {scope: 2}, {scope: 2})
    assert reused == {scope}
