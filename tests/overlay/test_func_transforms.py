"""`grad`, `value_and_grad`, `vjp`, `linearize`, aux, numbers, numpy arrays, trees, and vmap's chunks,
random numbers and empty batches."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scopes import numbers, same
from tinygrad import Tensor, TinyJit, dtypes
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
from tinygrad_overlay.schedule._scopes import VmapScopeError

A, B = numbers(3, 4, dtype=np.float64), numbers(3, 4, dtype=np.float64, seed=1)
V = numbers(4, dtype=np.float64, seed=2)


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
    got, second = grad(with_aux, has_aux=True)(x)
    same(got, 2 * V)
    _, slope, third = jvp(with_aux, (x,), (x,), has_aux=True)
    same(slope, (2 * V * V).sum())
    _, back, fourth = vjp(with_aux, x, has_aux=True)
    same(back(3.0)[0], 6 * V)
    _, along, fifth = linearize(with_aux, x, has_aux=True)
    same(along(x), (2 * V * V).sum())
    got, sixth = jacrev(with_aux, has_aux=True)(x)
    same(got, 2 * V)
    got, seventh = jacfwd(with_aux, has_aux=True)(x)
    same(got, 2 * V)
    got, eighth = hessian(with_aux, has_aux=True)(x)
    same(got, 2 * np.eye(4))
    for aux in (first, second, third, fourth, fifth, sixth, seventh, eighth):
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


@pytest.mark.parametrize("method", ["ranges", "pad_reduce"])
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


@pytest.mark.parametrize("method", ["ranges", "pad_reduce"])
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


def test_dropout_for_each_element() -> None:
    with Tensor.train():
        got = vmap(lambda x: x.dropout(0.5), randomness="different")(Tensor.ones(64, 32)).numpy()
    assert set(np.unique(got)) == {0.0, 2.0}
    assert len(np.unique(got, axis=0)) > 60


@pytest.mark.parametrize("method", ["ranges", "pad_reduce"])
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


BAD: dict[str, tuple[type[Exception], Callable[[], object], str]] = {
    "a result of several elements": (
        ValueError,
        lambda: grad(lambda x: x * 2)(Tensor(V)),
        r"^grad: the result must be one float, not of shape \(4,\)",
    ),
    "an integer": (TypeError, lambda: grad(lambda x: x)(3), "^grad: .* only floats have a derivative"),
    "no pair with aux": (
        TypeError,
        lambda: grad(lambda x: x.sum(), has_aux=True)(Tensor(V)),
        "with has_aux the function returns a pair",
    ),
    "argnums": (ValueError, lambda: grad(lambda x: x.sum(), argnums=2)(Tensor(V)), "argnums 2 does not fit the 1"),
    "a cotangent of another shape": (
        ValueError,
        lambda: vjp(lambda x: x * 2, Tensor(V))[1](Tensor(A)),
        r"vjp: cotangent of shape \(3, 4\)",
    ),
    "too few tangents": (
        ValueError,
        lambda: linearize(lambda x, y: x * y, Tensor(V), Tensor(V))[1](Tensor(V)),
        "linearize: tangents",
    ),
    "no function": (TypeError, lambda: vjp(3, Tensor(V)), "vjp: the function is of type int"),  # pyright: ignore
    "chunk_size": (ValueError, lambda: vmap(lambda x: x, chunk_size=0), "chunk_size is a positive int, not 0"),
    "randomness": (ValueError, lambda: vmap(lambda x: x, randomness="yes"), "randomness is one of 'error'"),
    "a keyword without an axis": (
        TypeError,
        lambda: vmap(lambda x, *, y: x)(Tensor(A), y=3),
        "keywords are mapped over axis 0: bind it with functools.partial",
    ),
    "a string as a result": (TypeError, lambda: vmap(lambda x: "text")(Tensor(A)), "the result is 'text' of type str"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_they_cannot_take(what: str) -> None:
    error, call, sentence = BAD[what]
    with pytest.raises(error, match=sentence):
        call()


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
