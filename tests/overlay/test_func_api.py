"""`tinygrad.func` as users call it: arguments, results, axes, nesting, derivatives, TinyJit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from scopes import LOOP, numbers, varg_in, varg_out
from tinygrad import GlobalCounters, Tensor, TinyJit, UOp, dtypes
from tinygrad.engine.schedule import schedule_cache
from tinygrad.func import grad, hessian, jacfwd, jacobian, jacrev, jvp, jvp_of, vmap
from tinygrad.uop.ops import GroupOp, Ops

A, B, C = numbers(3, 4), numbers(3, 4), numbers(4, 5)


def same(got: Tensor, want: Any, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(got.numpy(), np.asarray(want), rtol=tolerance, atol=tolerance)


# *** arguments and results


class Pair(NamedTuple):
    left: Any
    right: Any


def test_arguments_and_results_in_tuples_lists_dicts_and_named_tuples() -> None:
    def fn(p: Pair, rest: dict[str, Any], nothing: None) -> dict[str, Any]:
        assert nothing is None
        assert isinstance(p, Pair)
        (w,) = rest["w"]
        return {"sum": [p.left + p.right, None], "pair": Pair(p.left * w, (p.right.sum(),))}

    got = vmap(fn)(Pair(Tensor(A), Tensor(B)), {"w": [Tensor(A)], "n": ()}, None)
    assert got["sum"][1] is None
    assert isinstance(got["pair"], Pair)
    same(got["sum"][0], A + B)
    same(got["pair"].left, A * A)
    same(got["pair"].right[0], B.sum(1))


def test_axes_for_each_leaf_for_a_node_and_for_all() -> None:
    def fn(p: dict[str, Any], s: Tensor) -> tuple[Tensor, Tensor]:
        return p["a"] * s, (p["b"][0] + p["b"][1]).sum()

    args = {"a": Tensor(A), "b": [Tensor(B.T.copy()), Tensor(A.T.copy())]}
    for axes in ({"a": 0, "b": 1}, {"a": 0, "b": (1, -1)}, {"a": -2, "b": [-1, 1]}):
        got = vmap(fn, in_axes=(axes, None))(args, Tensor(3.0))
        same(got[0], A * 3)
        same(got[1], (A + B).sum(1))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_out_axes(axis: int) -> None:
    same(
        vmap(lambda v, w: w * v.sum(), in_axes=(0, None), out_axes=axis)(Tensor(A), Tensor(C)),
        np.moveaxis(A.sum(1)[:, None, None] * C, 0, axis),
    )


def test_out_axes_for_each_result() -> None:
    got = vmap(lambda v: {"a": v, "b": (v.sum(), v * 2)}, out_axes={"a": -1, "b": (0, 1)})(Tensor(A))
    same(got["a"], A.T)
    same(got["b"][0], A.sum(1))
    same(got["b"][1], A.T * 2)


def test_keywords_are_mapped_over_axis_0_and_unmapped_arguments_may_be_anything() -> None:
    def fn(v: Tensor, scale: float, mode: str, *, bias: Tensor) -> Tensor:
        assert (mode, bias.shape) == ("plain", ())
        return v * scale + bias

    got = vmap(fn, in_axes=(0, None, None))(Tensor(A), 2.5, "plain", bias=Tensor(A[:, 0].copy()))
    same(got, A * 2.5 + A[:, :1])


def test_a_result_that_does_not_depend_on_the_batch() -> None:
    def fn(v: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return v, w * 2, w.sum(), Tensor([1.0, 2.0])

    got = vmap(fn, in_axes=(0, None), out_axes=(0, 0, None, 1))(Tensor(A), Tensor(C))
    same(got[1], np.broadcast_to(C * 2, (3, 4, 5)))
    same(got[2], C.sum())
    same(got[3], [[1, 1, 1], [2, 2, 2]])


def test_axis_size_where_nothing_is_mapped() -> None:
    same(vmap(lambda w: w + 1, in_axes=None, axis_size=2)(Tensor(A)), np.stack([A + 1] * 2))
    same(vmap(lambda: Tensor(A).sum(), axis_size=3)(), [A.sum()] * 3)
    same(vmap(lambda v: v, axis_size=3)(Tensor(A)), A)


def test_the_forms_of_a_decorator() -> None:
    @vmap
    def plain(v: Tensor) -> Tensor:
        """Sums."""
        return v.sum()

    @vmap(in_axes=1)
    def columns(v: Tensor) -> Tensor:
        return v.sum()

    @jacrev
    def square(v: Tensor) -> Tensor:
        return v * v

    same(plain(Tensor(A)), A.sum(1))
    same(columns(Tensor(A)), A.sum(0))
    same(square(Tensor(A[0])), np.diag(2 * A[0]))
    assert (plain.__name__, plain.__doc__) == ("plain", "Sums.")


def test_nested_calls_count_axes_without_the_mapped_axes() -> None:
    x = numbers(2, 3, 5)
    same(vmap(vmap(lambda v: v.sum()))(Tensor(x)), x.sum(2))
    same(vmap(vmap(lambda v: v.sum(), in_axes=1), in_axes=1)(Tensor(x)), x.transpose(1, 2, 0).sum(2))
    # pairs of rows: each argument is mapped by a vmap of its own
    pairs = vmap(vmap(lambda a, b: (a * b).sum(), in_axes=(None, 0)), in_axes=(0, None))
    same(pairs(Tensor(A), Tensor(B)), A @ B.T)
    # the inner one closes over what the outer one maps
    same(vmap(lambda a: vmap(lambda b: (a * b).sum())(Tensor(B)) + a.sum())(Tensor(A)), A @ B.T + A.sum(1)[:, None])


@pytest.mark.parametrize("method", ["ranges", "pad_reduce"])
def test_six_levels(method: str) -> None:
    sizes = (2, 3, 2, 1, 2, 3)
    x = numbers(*sizes, 4)
    fn: Callable[..., Any] = lambda v: (v * v).sum() + v[[2, 0]].max()  # noqa: E731
    for _ in sizes:
        fn = vmap(fn, method=method)
    same(fn(Tensor(x)), (x * x).sum(-1) + x[..., [2, 0]].max(-1))


def test_methods_and_axis_types_nested_in_each_other() -> None:
    x = numbers(2, 3, 4)
    ways = [{}, {"axis_type": "outer"}, {"method": "pad_reduce"}]
    for outer in ways:
        for inner in ways:
            got = vmap(vmap(lambda v: v.softmax().contiguous() * v.sum(), **inner), **outer)(Tensor(x))
            e = np.exp(x - x.max(-1, keepdims=True))
            same(got, e / e.sum(-1, keepdims=True) * x.sum(-1, keepdims=True))


# *** derivatives of each other


def cube(v: Tensor) -> Tensor:
    return (v * v * v).sum()


def test_backward_to_weights_that_the_function_closes_over() -> None:
    w = Tensor(C, requires_grad=True)
    b = Tensor(np.zeros(5, dtype=np.float32), requires_grad=True)
    vmap(lambda v: ((v @ w + b) ** 2).sum())(Tensor(A)).sum().backward()
    assert w.grad is not None
    assert b.grad is not None
    same(w.grad, 2 * A.T @ (A @ C), 1e-4)
    same(b.grad, 2 * (A @ C).sum(0), 1e-4)


def test_gradient_of_vmap_and_vmap_of_gradient() -> None:
    x = Tensor(A)
    same(vmap(cube)(x).sum().gradient(x)[0], 3 * A * A)
    same(vmap(lambda v: cube(v).gradient(v)[0])(x), 3 * A * A)
    # per element, also by what is not mapped
    w = Tensor(A[0])
    same(vmap(lambda v, w: cube(v * w).gradient(w)[0], in_axes=(0, None))(x, w), 3 * A**3 * A[0] ** 2, 1e-4)


def test_jvp_of_vmap_and_vmap_of_jvp() -> None:
    x, t = Tensor(A), Tensor(B)
    want = (3 * A * A * B).sum(1)
    y, got = jvp(vmap(cube), (x,), (t,))
    same(y, (A**3).sum(1))
    same(got, want)
    same(vmap(lambda v, d: jvp(cube, (v,), (d,))[1])(x, t), want)
    # one point, a batch of directions
    same(vmap(lambda d: jvp(cube, (Tensor(A[0]),), (d,))[1])(t), (3 * A[0] ** 2 * B).sum(1))


def test_jvp_of_jvp_and_of_gradient() -> None:
    x, t = Tensor(A[0]), Tensor(B[0])
    same(jvp(lambda v: jvp(cube, (v,), (t,))[1], (x,), (t,))[1], (6 * A[0] * B[0] ** 2).sum())
    # a Hessian times a vector, three ways
    want = 6 * A[0] * B[0]
    same(jvp(lambda v: cube(v).gradient(v)[0], (x,), (t,))[1], want)
    same((cube(x).gradient(x)[0] * t).sum().gradient(x)[0], want)
    same(jvp(cube, (x,), (t,))[1].gradient(x)[0], want)


def test_two_derivatives_in_each_other_keep_their_inputs_apart() -> None:
    one = Tensor(1.0)

    def outer(x: Tensor) -> Tensor:
        return x * jvp(lambda y: x + y, (one,), (one,))[1]

    # the inner derivative is 1, so the outer function is x
    same(jvp(outer, (one,), (one,))[1], 1)
    # the inner point is the outer input itself
    x = Tensor(3.0)
    same(jvp(lambda x: x * jvp(lambda y: x * y, (x,), (one,))[1], (x,), (one,))[1], 6)
    # a tensor that the function closes over is constant, even if it is also the input
    same(jvp(lambda y: x * y, (x,), (one,))[1], 3)
    same(jacrev(lambda y: x * y)(x), 3)
    same(jacrev(lambda y: y * jacfwd(lambda z: y * z)(y))(x), 6)


def test_jvp_takes_and_gives_trees_and_zero_where_nothing_moves() -> None:
    def fn(p: dict[str, Tensor], w: list[Tensor]) -> dict[str, Any]:
        return {"m": p["a"] * w[0], "whole": (p["a"] > 0).int(), "still": Tensor([1.0, 2.0]), "none": None}

    a, t = Tensor(A[0]), Tensor(B[0])
    out, moved = jvp(fn, ({"a": a}, [a]), ({"a": t}, [t]))
    same(out["m"], A[0] ** 2)
    same(moved["m"], 2 * A[0] * B[0])
    same(moved["whole"], np.zeros(4))
    same(moved["still"], np.zeros(2))
    assert moved["none"] is None


# name: (a function that a Tensor method makes the op of, its point, the op that must be in the graph)
RULES: dict[str, tuple[Callable[[Tensor], Tensor], list[float], Ops]] = {
    "ADD": (lambda x: x + x * 2, [1.0, -2.0], Ops.ADD),
    "MUL": (lambda x: x * x.flip(0), [1.5, -2.0], Ops.MUL),
    "MAX": (lambda x: x.maximum(x.flip(0) * 2), [1.5, -2.0], Ops.MAX),
    "POW": (lambda x: x.pow(x.flip(0)), [1.5, 2.0], Ops.POW),
    "RECIPROCAL": (lambda x: x.reciprocal(), [1.5, -2.0], Ops.RECIPROCAL),
    "SQRT": (lambda x: x.sqrt(), [1.5, 2.0], Ops.SQRT),
    "SIN": (lambda x: x.sin(), [1.5, -2.0], Ops.SIN),
    "EXP2": (lambda x: x.exp2(), [1.5, -2.0], Ops.EXP2),
    "LOG2": (lambda x: x.log2(), [1.5, 2.0], Ops.LOG2),
    "WHERE": (lambda x: (x > 0).where(x * x, -x), [1.5, -2.0], Ops.WHERE),
    "TRUNC": (lambda x: x.trunc() + x, [1.5, -2.3], Ops.TRUNC),
    "DETACH": (lambda x: x.detach() * 0 + x * 3, [1.5, -2.0], Ops.DETACH),
    "CONTIGUOUS": (lambda x: (x * x).contiguous(), [1.5, -2.0], Ops.CONTIGUOUS),
    "CONTIGUOUS_BACKWARD": (lambda x: (x * x).contiguous_backward(), [1.5, -2.0], Ops.CONTIGUOUS_BACKWARD),
    "COPY": (lambda x: (x * x).to("PYTHON:1").to(x.device) * x, [1.5, -2.0], Ops.COPY),
    "sum": (lambda x: (x * x).sum(), [1.5, -2.0], Ops.REDUCE_AXIS),
    "max": (lambda x: (x * x).max(), [1.5, -2.0], Ops.REDUCE_AXIS),
    "prod": (lambda x: x.prod(), [1.5, -2.0, 3.0], Ops.REDUCE_AXIS),
    "prod with a zero": (lambda x: x.prod(), [1.5, 0.0, 3.0], Ops.REDUCE_AXIS),
    "prod with two zeros": (lambda x: x.prod(), [0.0, 0.0, 3.0], Ops.REDUCE_AXIS),
    "RESHAPE": (lambda x: (x * x).reshape(2, 1), [1.5, -2.0], Ops.RESHAPE),
    "PERMUTE": (lambda x: (x.reshape(2, 1).expand(2, 3) * x.prod()).T, [1.5, -2.0], Ops.PERMUTE),
    "EXPAND": (lambda x: x.reshape(2, 1).expand(2, 3) * 2, [1.5, -2.0], Ops.EXPAND),
    "PAD": (lambda x: (x * x).pad((1, 2)), [1.5, -2.0], Ops.PAD),
    "SHRINK": (lambda x: (x * x)[1:], [1.5, -2.0], Ops.SHRINK),
    "FLIP": (lambda x: (x * x).flip(0), [1.5, -2.0], Ops.FLIP),
}


@pytest.mark.parametrize("name", RULES)
def test_each_rule_of_jvp_against_finite_differences(name: str) -> None:
    """Central differences in float64: their error is about the square of the step."""
    fn, point, op = RULES[name]
    x = np.array(point)
    t = np.array([0.7, -1.3, 0.4])[: len(x)]
    assert op in {u.op for u in fn(Tensor(x)).uop.toposort()}
    step = 1e-5
    want = (fn(Tensor(x + step * t)).numpy() - fn(Tensor(x - step * t)).numpy()) / (2 * step)
    if name == "DETACH":
        want = 3 * t
    same(jvp(fn, (Tensor(x),), (Tensor(t),))[1], want, 1e-7)


@pytest.mark.parametrize("name", ["floor", "ceil", "round", "trunc"])
def test_a_step_function_has_a_zero_gradient(name: str) -> None:
    """As in jax; stock tinygrad has no rule for TRUNC, and raises."""
    point = np.array([1.4, -2.3, 3.0])

    def scaled(x: Tensor) -> Tensor:
        return (getattr(x, name)() * x).sum()

    want = getattr(np, name)(point)
    same(grad(scaled)(Tensor(point)), want)
    same(grad(lambda x: getattr(x, name)().sum())(Tensor(point)), np.zeros(3))
    same(vmap(grad(scaled))(Tensor(point)), want)
    x = Tensor(point, requires_grad=True)
    scaled(x).backward()
    assert x.grad is not None
    same(x.grad, want)


def test_every_movement_op_has_its_case() -> None:
    assert GroupOp.Movement <= {op for _, _, op in RULES.values()}


def test_ties_share_as_in_the_gradient() -> None:
    x, t = Tensor([2.0, 2.0, 1.0]), Tensor([1.0, 5.0, 7.0])
    same(jvp(lambda v: v.max(), (x,), (t,))[1], (x.max().gradient(x)[0] * t).sum().item())
    y = Tensor([2.0, 3.0, 1.0])
    g = x.maximum(y).sum().gradient(x)[0]
    same(jvp(lambda v: v.maximum(y), (x,), (t,))[1], (g * t).numpy())


@pytest.mark.parametrize(
    ("base", "exponent", "by_base", "by_exponent"),
    [(0.0, 0.0, 0.0, 0.0), (0.0, 1.0, 1.0, 0.0), (0.0, 2.0, 0.0, 0.0), (0.0, 3.5, 0.0, 0.0), (-2.0, 3.0, 12.0, np.nan)],
)
def test_pow_at_its_corners(base: float, exponent: float, by_base: float, by_exponent: float) -> None:
    b, e, one = Tensor([base]), Tensor([exponent]), Tensor([1.0])
    same(jvp(lambda v: v.pow(e), (b,), (one,))[1], [by_base])
    same(jvp(lambda v: b.pow(v), (e,), (one,))[1], [by_exponent])
    same(jvp(lambda v: v**exponent, (b,), (one,))[1], [by_base])


def test_jvp_of_a_graph_with_vargs_by_hand() -> None:
    """The jvp of a vmap along each of a batch of directions, its columns against the direct jvp."""
    x, directions = Tensor(A), Tensor(np.stack([B, A, B * 2, A - B, B + 1]))
    inner, outer = UOp.range(3, -1, LOOP), UOp.range(5, -2, LOOP)
    y = (x.vmapin(varg_in(inner, 2, 0)) ** 2).sum().vmapout(varg_out(inner, 0, 0))
    t = jvp_of(y, x, directions.vmapin(varg_in(outer, 3, 0))).vmapout(varg_out(outer, 1, 0))
    same(t, np.stack([(2 * A * d).sum(1) for d in directions.numpy()]), 1e-4)


def test_jvp_of_many_outputs_and_inputs() -> None:
    x, w = Tensor(A), Tensor(C)
    y = x @ w
    got = jvp_of({"y": y, "s": (y.sum(), x)}, [x, w], [Tensor(B), w])
    same(got["y"], B @ C + A @ C)
    same(got["s"][0], (B @ C + A @ C).sum(), 1e-4)
    same(got["s"][1], B)
    # if one input is computed from another, each has its own tangent
    h = x * 2
    same(jvp_of(h * x, (x, h), (Tensor(B), Tensor(B))), A * B + 2 * A * B)


# *** Jacobians


def model(v: Tensor) -> Tensor:
    return Tensor.stack(v[0] * v[1], v[1].sin(), v[2] * v[2] * v[0] + v[3])


def model_jacobian(v: np.ndarray) -> np.ndarray:
    return np.array([[v[1], v[0], 0, 0], [0, np.cos(v[1]), 0, 0], [v[2] ** 2, 0, 2 * v[2] * v[0], 1]])


def test_dense_jacobians_against_the_closed_form() -> None:
    x = Tensor(A[0])
    want = model_jacobian(A[0])
    for got in (jacfwd(model)(x), jacrev(model)(x), *(jacobian(model, x, mode) for mode in (None, "fwd", "rev"))):
        same(got, want)
    same(vmap(jacrev(model))(Tensor(A)), np.stack([model_jacobian(a) for a in A]))
    same(vmap(jacfwd(model))(Tensor(A)), np.stack([model_jacobian(a) for a in A]))
    same(
        jacrev(vmap(model))(Tensor(A)),
        np.stack([[np.eye(3)[i][None, :, None] * model_jacobian(A[i])[:, None] for i in range(3)]])[0],
    )


def test_hessian_against_the_closed_form_and_under_vmap() -> None:
    def energy(v: Tensor) -> Tensor:
        return (v[0] * v[1] * v[1] + v[2].sin()).sum()

    def closed(v: np.ndarray) -> np.ndarray:
        return np.array([[0, 2 * v[1], 0], [2 * v[1], 2 * v[0], 0], [0, 0, -np.sin(v[2])]])

    x = A[:, :3].copy()
    same(hessian(energy)(Tensor(x[0])), closed(x[0]))
    same(vmap(hessian(energy))(Tensor(x)), np.stack([closed(v) for v in x]))
    same(jacrev(jacrev(energy))(Tensor(x[0])), closed(x[0]))
    same(jacrev(jacfwd(energy))(Tensor(x[0])), closed(x[0]))


@pytest.mark.parametrize("way", [jacfwd, jacrev])
def test_argnums_keywords_and_trees(way: Callable[..., Any]) -> None:
    def fn(p: dict[str, Tensor], v: Tensor, *, scale: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return p["w"] @ v * scale, {"b": p["b"] * 2}

    p = {"w": Tensor(C.T.copy()), "b": Tensor(A[0])}
    product, rest = way(fn, (0, -1))(p, Tensor(A[0]), scale=Tensor(3.0))
    by_p, by_v = product
    same(by_p["w"], np.einsum("ij,k->ijk", np.eye(5), A[0] * 3))
    same(by_p["b"], np.zeros((5, 4)))
    same(by_v, C.T * 3)
    same(rest["b"][0]["b"], np.eye(4) * 2)
    same(rest["b"][0]["w"], np.zeros((4, 5, 4)))
    same(rest["b"][1], np.zeros((4, 4)))


def test_jacobians_of_scalars_and_of_whole_results() -> None:
    x = Tensor(3.0)
    for way in (jacfwd, jacrev):
        same(way(lambda v: v * v)(x), 6)
        same(way(lambda v: v * Tensor(A[0]))(x), A[0])
        same(way(lambda v: v.sum())(Tensor(A)), np.ones((3, 4)))
        moved = way(lambda v: (v, (v > 0).int()))(Tensor(A[0]))
        same(moved[0], np.eye(4))
        same(moved[1], np.zeros((4, 4)))
    same(hessian(lambda v: v * v * v)(x), 18)


def test_jvp_of_a_cast_between_floats_has_the_dtype_of_the_result() -> None:
    x, t = Tensor(A), Tensor(B)
    y, moved = jvp(lambda v: (v * v).cast(dtypes.float64), (x,), (t,))
    assert (y.dtype, moved.dtype) == (dtypes.float64, dtypes.float64)
    same(moved, 2 * A * B)
    same(jvp(lambda v: v.double().float() * v, (x,), (t,))[1], 2 * A * B)


# *** TinyJit, the schedule cache


@pytest.mark.parametrize("axis_type", ["loop", "outer"])
def test_under_tinyjit_results_follow_the_inputs(axis_type: str) -> None:
    jitted = TinyJit(vmap(lambda v, w: ((v @ w).tanh() * v.sum()).softmax(), in_axes=(0, None), axis_type=axis_type))
    counts = []
    for call in range(5):
        v, w = numbers(3, 4) + call, numbers(4, 5) * (call + 1)
        inputs = Tensor(v).realize(), Tensor(w).realize()
        GlobalCounters.reset()
        out = jitted(*inputs)
        counts.append(GlobalCounters.kernel_count)
        z = np.tanh(v @ w) * v.sum(1, keepdims=True)
        e = np.exp(z - z.max(1, keepdims=True))
        same(out, e / e.sum(1, keepdims=True), 1e-4)
    # the first call runs it, the second notes its kernels, those after it run what was noted
    assert len(set(counts[2:])) == 1
    assert counts[-1] > 0


def test_derivatives_under_tinyjit() -> None:
    @TinyJit
    def all_of_them(v: Tensor, t: Tensor) -> tuple[Tensor, ...]:
        return jacrev(model)(v).realize(), jvp(model, (v,), (t,))[1].realize(), vmap(cube)(Tensor.stack(v, t)).realize()

    for call in range(4):
        v, t = A[0] + call, B[0] * (call + 1)
        j, moved, cubes = all_of_them(Tensor(v).realize(), Tensor(t).realize())
        same(j, model_jacobian(v), 1e-4)
        same(moved, model_jacobian(v) @ t, 1e-4)
        same(cubes, [(v**3).sum(), (t**3).sum()], 1e-4)


def test_a_program_that_is_built_again_is_found_in_the_schedule_cache() -> None:
    """Each call of vmap has its own RANGE, but the schedule numbers them again."""
    x, t = Tensor(A).realize(), Tensor(B).realize()

    def build() -> Tensor:
        twice = vmap(lambda v: vmap(lambda s: s * 2)(v) + v.sum())
        return jvp(twice, (x,), (t,))[1] + vmap(cube, method="pad_reduce")(x).unsqueeze(1)

    first = build().numpy()
    size = len(schedule_cache)
    for _ in range(3):
        np.testing.assert_array_equal(build().numpy(), first)
    assert len(schedule_cache) == size
