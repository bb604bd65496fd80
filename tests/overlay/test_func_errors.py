"""Every error of `tinygrad.func`: its type, and the facts that its sentence must hold."""

# the wrong arguments of these calls are what is tested
# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scopes import numbers
from tinygrad import Tensor, UOp, Variable, dtypes, nn
from tinygrad.func import hessian, jacfwd, jacobian, jacrev, jvp, jvp_of, vmap
from tinygrad.uop.ops import KernelInfo
from tinygrad_overlay.schedule._scopes import VmapScopeError

X = Tensor(numbers(3, 4))
Y = Tensor(numbers(5, 4))
WHOLE = Tensor(np.arange(12, dtype=np.int32).reshape(3, 4))
Call = Callable[[], object]


@pytest.fixture(autouse=True)
def _process_still_works() -> Any:
    """An error leaves nothing behind: no open scope, no function that seems to run still."""
    yield
    np.testing.assert_allclose(vmap(lambda v: v * 2)(X).numpy(), X.numpy() * 2)
    np.testing.assert_allclose(jvp(lambda v: v * v, (X,), (X,))[1].numpy(), 2 * X.numpy() ** 2, rtol=1e-5)
    Tensor.rand(2).realize()


def check(error: type[Exception], call: Call, *facts: str) -> None:
    """The call raises `error` with a sentence of one line that holds all the facts."""
    with pytest.raises(error) as raised:
        call()
    message = str(raised.value)
    assert type(raised.value) is error
    for fact in facts:
        assert fact in message, message
    assert "\n" not in message
    assert "UOp(" not in message


def of_symbolic_size() -> Tensor:
    return X[: Variable("n", 1, 3).bind(2)]


def double(v: Any, *_: Any, **__: Any) -> Any:
    return v * 2


# *** vmap: the options and the arguments

VMAP: dict[str, tuple[type[Exception], Call, list[str]]] = {
    "no function": (TypeError, lambda: vmap(3)(X), ["vmap: the function is 3 of type int"]),
    "a tensor for the function": (TypeError, lambda: vmap(X), ["vmap: the function is of type Tensor"]),
    "axis_type": (ValueError, lambda: vmap(double, axis_type="warp"), ["axis_type", "'loop', 'outer'", "'warp'"]),
    "method": (ValueError, lambda: vmap(double, method="pad"), ["method", "'ranges', 'pad_reduce'", "'pad'"]),
    "axis_size 0": (ValueError, lambda: vmap(double, axis_size=0), ["axis_size is a positive int, not 0"]),
    "axis_size True": (ValueError, lambda: vmap(double, axis_size=True), ["axis_size is a positive int, not True"]),
    "axis_size 2.0": (ValueError, lambda: vmap(double, axis_size=2.0), ["axis_size is a positive int, not 2.0"]),
    "in_axes too short": (
        ValueError,
        lambda: vmap(double, in_axes=(0,))(X, X),
        ["in_axes (0,) has 1 entries, but 2 positional arguments"],
    ),
    "in_axes too long": (
        ValueError,
        lambda: vmap(double, in_axes=[0, None])(X),
        ["in_axes [0, None] has 2 entries, but 1 positional arguments"],
    ),
    "in_axes deeper than the argument": (
        ValueError,
        lambda: vmap(double, in_axes=((0, 1),))(X),
        ["in_axes: (0, 1) does not fit args[0], which is a Tensor"],
    ),
    "in_axes of another length than the tuple": (
        ValueError,
        lambda: vmap(double, in_axes=((0, 1),))((X, X, X)),
        ["in_axes: (0, 1) does not fit args[0], which is a tuple of 3"],
    ),
    "in_axes with other keys": (
        ValueError,
        lambda: vmap(double, in_axes=({"w": 0},))({"v": X}),
        ["in_axes: {'w': 0} does not fit args[0], which is a dict with the keys 'v'"],
    ),
    "in_axes with a float": (TypeError, lambda: vmap(double, in_axes=1.0)(X), ["in_axes", "int or None, not 1.0"]),
    "in_axes with a bool": (TypeError, lambda: vmap(double, in_axes=True)(X), ["in_axes", "int or None, not True"]),
    "in_axes with a word deep inside": (
        TypeError,
        lambda: vmap(double, in_axes=({"w": (0, "x")},))({"w": (X, X)}),
        ["in_axes", "int or None, not 'x', for args[0]['w'][1]"],
    ),
    "a number that is mapped": (
        TypeError,
        lambda: vmap(double)(X, 2.5),
        ["args[1] is 2.5 of type float", "axis 0", "None in in_axes"],
    ),
    "an array of words that is mapped": (
        TypeError,
        lambda: vmap(double)([X, np.array(["a", "b", "c"])]),
        ["args[0][1] is of type ndarray", "axis 0"],
    ),
    "a keyword that is no tensor": (
        TypeError,
        lambda: vmap(double)(X, scale=2),
        ["kwargs['scale'] is 2 of type int", "axis 0"],
    ),
    "axis too large": (
        ValueError,
        lambda: vmap(double, in_axes=2)(X),
        ["axis 2 is out of range for args[0] of shape (3, 4)", "axes -2 to 1"],
    ),
    "axis too small": (
        ValueError,
        lambda: vmap(double, in_axes=(None, -3))(X, X),
        ["axis -3 is out of range for args[1] of shape (3, 4)", "axes -2 to 1"],
    ),
    "a scalar that is mapped": (
        ValueError,
        lambda: vmap(double)(Tensor(1.0)),
        ["axis 0 is out of range for args[0] of shape ()", "no axis", "None in in_axes"],
    ),
    "a symbolic axis in parts": (
        ValueError,
        lambda: vmap(double, chunk_size=1)(of_symbolic_size()),
        ["chunk_size needs a batch of fixed size, not n=2"],
    ),
    "a symbolic axis of pad_reduce": (
        ValueError,
        lambda: vmap(double, method="pad_reduce")(of_symbolic_size()),
        ["method 'pad_reduce' needs a batch of fixed size, not n=2"],
    ),
    "a symbolic axis and a fixed one": (
        ValueError,
        lambda: vmap(double)(of_symbolic_size(), X),
        ["args[0] of shape (n=2, 4) has n=2 at axis 0", "args[1] of shape (3, 4) has 3 at axis 0"],
    ),
    "a symbolic axis of two values": (
        ValueError,
        lambda: vmap(double)(of_symbolic_size(), X[: Variable("n", 1, 3).bind(3)]),
        ["(n=2, 4) has n=2 at axis 0", "(n=3, 4) has n=3 at axis 0"],
    ),
    "numbers for a symbolic axis": (
        VmapScopeError,
        lambda: vmap(lambda v: v * Tensor.rand(4), randomness="different")(of_symbolic_size()),
        ["randomness='different' needs a batch of fixed size, not n=2"],
    ),
    "an axis next to a symbolic one": (
        ValueError,
        lambda: vmap(double, in_axes=2)(of_symbolic_size()),
        ["axis 2 is out of range for args[0] of shape (n=2, 4)"],
    ),
    "nothing mapped": (
        ValueError,
        lambda: vmap(double, in_axes=None)(X),
        ["no argument is mapped", "axis_size", "in_axes"],
    ),
    "no arguments": (ValueError, lambda: vmap(lambda: X)(), ["no argument is mapped", "axis_size"]),
    "sizes that disagree": (
        ValueError,
        lambda: vmap(double, in_axes=(0, {"w": -1}, None))(X, {"w": Y}, Y, bias=Y),
        [
            "one size",
            "args[0] of shape (3, 4) has 3 at axis 0",
            "args[1]['w'] of shape (5, 4) has 4 at axis 1",
            "kwargs['bias'] of shape (5, 4) has 5 at axis 0",
        ],
    ),
    "another axis_size": (
        ValueError,
        lambda: vmap(double, axis_size=7)(X),
        ["args[0] of shape (3, 4) has 3 at axis 0", "axis_size is 7"],
    ),
}

RESULTS: dict[str, tuple[type[Exception], Call, list[str]]] = {
    "a word": (TypeError, lambda: vmap(lambda v: "word")(X), ["the result is 'word' of type str", "Tensors"]),
    "a word in a dict": (
        TypeError,
        lambda: vmap(lambda v: {"a": (v, "word")})(X),
        ["the result['a'][1] is 'word' of type str", "Tensors"],
    ),
    "a UOp": (TypeError, lambda: vmap(lambda v: v.uop)(X), ["the result is of type UOp"]),
    "mapped, for None": (
        ValueError,
        lambda: vmap(lambda v: (v, v.sum()), out_axes=(0, None))(X),
        ["the result[1] of shape () depends on the batch of 3", "out_axes, not None"],
    ),
    "axis too large": (
        ValueError,
        lambda: vmap(double, out_axes=2)(X),
        ["axis 2 in out_axes", "the result of shape (4,)", "2 axes", "-2 to 1"],
    ),
    "axis too small": (ValueError, lambda: vmap(double, out_axes=-3)(X), ["axis -3 in out_axes", "-2 to 1"]),
    "axis of a scalar": (
        ValueError,
        lambda: vmap(lambda v: v.sum(), out_axes=1)(X),
        ["axis 1 in out_axes", "shape ()", "1 axes", "-1 to 0"],
    ),
    "out_axes of another length": (
        ValueError,
        lambda: vmap(lambda v: (v, v), out_axes=(0,))(X),
        ["out_axes: (0,) does not fit the result, which is a tuple of 2"],
    ),
    "out_axes deeper than the result": (
        ValueError,
        lambda: vmap(double, out_axes=[0])(X),
        ["out_axes: [0] does not fit the result, which is a Tensor"],
    ),
    "out_axes with a word": (TypeError, lambda: vmap(double, out_axes="0")(X), ["out_axes", "int or None, not '0'"]),
}


@pytest.mark.parametrize("what", VMAP)
def test_what_vmap_cannot_take(what: str) -> None:
    error, call, facts = VMAP[what]
    check(error, call, *facts)


@pytest.mark.parametrize("what", RESULTS)
def test_what_a_mapped_function_cannot_return(what: str) -> None:
    error, call, facts = RESULTS[what]
    check(error, call, *facts)


# *** inside the function that is mapped

REALIZED: dict[str, Callable[[Tensor], object]] = {
    "item": lambda v: v.sum().item(),
    "numpy": lambda v: v.numpy(),
    "tolist": lambda v: (v + 1).tolist(),
    "realize": lambda v: v.exp().realize(),
    "float": lambda v: float(v.sum().item()),
    "masked_select": lambda v: v.masked_select(v > 0),
    "assign of a realized value": lambda v: v.contiguous().realize().assign(v),
}


@pytest.mark.parametrize("method", ["ranges", "pad_reduce"])
@pytest.mark.parametrize("what", REALIZED)
def test_a_value_of_the_batch_cannot_be_realized(what: str, method: str) -> None:
    check(
        VmapScopeError,
        lambda: vmap(lambda v: (REALIZED[what](v), v)[1], method=method)(X),
        "cannot be realized",
        "(size 3)",
        "leave the scope first, with VMAPOUT or as a result of the mapped function",
    )


@pytest.mark.parametrize(
    "branch",
    [
        lambda v: v if v.sum() > 0 else -v,
        lambda v: v if (v.max() > 0 and v.min() < 0) else -v,
        lambda v: v * (not v.sum()),
        lambda v: v[0] or v[1],
    ],
    ids=["if", "and", "not", "or"],
)
def test_a_python_branch_on_a_value_of_the_batch(branch: Callable[[Tensor], Any]) -> None:
    check(VmapScopeError, lambda: vmap(branch)(X), "a Python `if`", "shape ()", "size 3", "Tensor.where")


def test_both_batches_are_named_where_two_are_open() -> None:
    check(
        VmapScopeError,
        lambda: vmap(lambda v: vmap(lambda s: s.realize())(v))(X),
        "size 3",
        "size 4",
        "cannot be realized",
    )


def dropout(v: Tensor) -> Tensor:
    with Tensor.train():
        return v.dropout(0.5)


# what the user calls, the shape that it draws
RANDOM: dict[str, tuple[Callable[[Tensor], Any], str, tuple[int, ...]]] = {
    "rand": (lambda v: v + Tensor.rand(4), "Tensor.rand draws", (4,)),
    "rand of a tuple": (lambda v: v + Tensor.rand((2, 4)), "Tensor.rand draws", (2, 4)),
    "rand of a scalar": (lambda v: v + Tensor.rand(()), "Tensor.rand draws", ()),
    "randn": (lambda v: v + Tensor.randn(4), "Tensor.randn draws", (4,)),
    "rand_like": (lambda v: v.rand_like(), "Tensor.rand_like draws", (4,)),
    "randn_like": (lambda v: v.randn_like(), "Tensor.randn_like draws", (4,)),
    "dropout": (dropout, "Tensor.dropout draws", (4,)),
    "randint": (lambda v: v + Tensor.randint(2, 4), "Tensor.randint draws", (2, 4)),
    "uniform": (lambda v: v + Tensor.uniform(4), "Tensor.uniform draws", (4,)),
    "normal": (lambda v: v + Tensor.normal(2, 4), "Tensor.normal draws", (2, 4)),
    "randperm": (lambda v: v[Tensor.randperm(4)], "Tensor.randperm draws", (4,)),
    "kaiming_uniform": (lambda v: v @ Tensor.kaiming_uniform(4, 2), "Tensor.kaiming_uniform draws", (4, 2)),
    "multinomial": (lambda v: v.softmax().multinomial(), "Tensor.multinomial draws", (1, 1, 1)),
    "a layer that is made inside": (lambda v: nn.Linear(4, 2)(v), "Tensor.uniform draws", (2, 4)),
    "the method itself": (Tensor.rand_like, "Tensor.rand_like draws", (4,)),
}


@pytest.mark.parametrize("what", RANDOM)
def test_a_random_call_names_the_method_that_was_called(what: str) -> None:
    fn, called, shape = RANDOM[what]
    check(
        VmapScopeError,
        lambda: vmap(fn)(X),
        called,
        f"of shape {shape} inside a function that vmap maps over 3 elements",
        f"draw shape {(3, *shape)} before the vmap",
    )


def test_a_random_call_is_named_right_after_another_error() -> None:
    """tinygrad keeps the name of the method that raised; what is called next must not get it."""
    with pytest.raises(VmapScopeError, match=r"Tensor\.randn draws"):
        vmap(lambda v: Tensor.randn(4))(X)
    with pytest.raises(ValueError, match="size mismatch"):
        X.reshape(7)
    with pytest.raises(VmapScopeError, match=r"Tensor\.rand draws"):
        vmap(lambda v: Tensor.rand(4))(X)


def test_dropout_without_training_and_earlier_random_numbers_are_not_random_calls() -> None:
    noise = Tensor.rand(3, 4)
    got = vmap(lambda v, n: v.dropout(0.5) + n)(X, noise)
    np.testing.assert_allclose(got.numpy(), X.numpy() + noise.numpy(), rtol=1e-6)


def add_one(out: UOp, inp: UOp) -> UOp:
    i = UOp.range(4, 0)
    return out[i].store(inp[i] + 1).end(i).sink(arg=KernelInfo(name="add_one"))


def test_an_error_of_the_users_goes_through_unchanged() -> None:
    def fn(v: Tensor) -> Tensor:
        raise KeyError("mine")

    for call in (lambda: vmap(fn)(X), lambda: jvp(fn, (X,), (X,)), lambda: jacrev(fn)(X)):
        with pytest.raises(KeyError, match="mine"):
            call()


# *** jvp, jvp_of

JVP: dict[str, tuple[type[Exception], Call, list[str]]] = {
    "primals that are a tensor": (
        TypeError,
        lambda: jvp(double, X, X),
        ["primals and tangents are a tuple or a list", "a Tensor and a Tensor"],
    ),
    "tangents that are a dict": (TypeError, lambda: jvp(double, (X,), {"x": X}), ["a tuple of 1", "'x'"]),
    "fewer tangents": (
        ValueError,
        lambda: jvp(double, (X, X), (X,)),
        ["tangents is a tuple of 1", "primals is a tuple of 2"],
    ),
    "another structure inside": (
        ValueError,
        lambda: jvp(double, ({"a": X, "b": (X, X)},), ({"a": X, "b": (X, X, X)},)),
        ["tangents[0]['b'] is a tuple of 3", "primals[0]['b'] is a tuple of 2"],
    ),
    "other keys": (
        ValueError,
        lambda: jvp(double, ({"a": X},), ({"b": X},)),
        ["tangents[0] is a dict with the keys 'b'", "primals[0] is a dict with the keys 'a'"],
    ),
    "a tensor for a list": (
        ValueError,
        lambda: jvp(double, ([X],), (X,)),
        ["tangents[0] is a Tensor", "primals[0] is a list of 1"],
    ),
    "None for a tensor": (
        ValueError,
        lambda: jvp(double, (X,), (None,)),
        ["tangents[0] is None", "primals[0] is a Tensor"],
    ),
    "a primal that is a whole number": (TypeError, lambda: jvp(double, (2,), (X,)), ["primals[0] of shape () is int"]),
    "a tangent of a number": (
        ValueError,
        lambda: jvp(double, (2.0,), (X,)),
        ["tangents[0] of shape (3, 4)", "primals[0]", "shape ()"],
    ),
    "a tangent that is a number": (ValueError, lambda: jvp(double, (X,), (1,)), ["tangents[0] of shape ()", "(3, 4)"]),
    "a primal that is a word": (TypeError, lambda: jvp(double, ("a",), (X,)), ["primals[0] is 'a' of type str"]),
    "a tangent that is a word": (TypeError, lambda: jvp(double, (X,), ("a",)), ["tangents[0] is 'a' of type str"]),
    "a primal of ints": (
        TypeError,
        lambda: jvp(double, (WHOLE,), (X,)),
        ["primals[0] of shape (3, 4) is int", "only floats"],
    ),
    "a tangent of another shape": (
        ValueError,
        lambda: jvp(double, (X, X), (X, Y)),
        ["tangents[1] of shape (5, 4) and float", "primals[1]", "shape (3, 4) and float"],
    ),
    "a tangent of another dtype": (
        ValueError,
        lambda: jvp(double, (X,), (X.cast(dtypes.float64),)),
        ["tangents[0] of shape (3, 4) and double", "primals[0]", "float"],
    ),
    "a result that is no tensor": (
        TypeError,
        lambda: jvp(lambda v: (v, "a"), (X,), (X,)),
        ["jvp: the result[1] is 'a' of type str"],
    ),
    "an op without a rule": (
        NotImplementedError,
        lambda: jvp(lambda v: Tensor.custom_kernel(Tensor.empty(4), v, fxn=add_one)[0], (X[0],), (X[0],)),
        ["jvp: CUSTOM_KERNEL has no derivative rule"],
    ),
    "jvp_of: fewer tangents": (
        ValueError,
        lambda: jvp_of(X * 2, [X, X], [X]),
        ["tangents is a list of 1", "inputs is a list of 2"],
    ),
    "jvp_of: a tangent of another shape": (ValueError, lambda: jvp_of(X * 2, X, Y), ["(5, 4)", "(3, 4)", "tangent"]),
    "jvp_of: ints": (
        TypeError,
        lambda: jvp_of(WHOLE * 2, WHOLE, WHOLE),
        ["inputs of shape (3, 4) is int", "only floats"],
    ),
    "jvp_of: an input twice": (
        ValueError,
        lambda: jvp_of(X * 2, {"a": X, "b": X}, {"a": X, "b": X}),
        ["inputs['a'] and inputs['b'] of shape (3, 4) are the same value"],
    ),
    "jvp_of: an input that the output does not use": (
        ValueError,
        lambda: jvp_of(X * 2, (X, Y), (X, Y)),
        ["inputs[1] of shape (5, 4) is not in the graph"],
    ),
    "jvp_of: an output that is no tensor": (
        TypeError,
        lambda: jvp_of(3, X, X),
        ["jvp_of: the result is 3 of type int"],
    ),
}


@pytest.mark.parametrize("what", JVP)
def test_what_jvp_cannot_take(what: str) -> None:
    error, call, facts = JVP[what]
    check(error, call, *facts)


@pytest.mark.parametrize("realize", [lambda v: v.numpy(), lambda v: (v * 2).sum().item(), lambda v: v.exp().realize()])
@pytest.mark.parametrize(
    "derivative",
    [lambda fn: jvp(fn, (X,), (X,)), lambda fn: jacrev(fn)(X), lambda fn: jacobian(fn, X), lambda fn: hessian(fn)(X)],
)
def test_an_input_of_a_function_that_is_differentiated_cannot_be_realized(derivative: Any, realize: Any) -> None:
    def fn(v: Tensor) -> Tensor:
        realize(v)
        return v.sum()

    check(
        RuntimeError,
        lambda: derivative(fn),
        "depends on an input of a function that is differentiated",
        "cannot be realized",
    )


# *** Jacobians

JACOBIAN: dict[str, tuple[type[Exception], Call, list[str]]] = {
    "no function": (TypeError, lambda: jacfwd(3), ["jacfwd: the function is of type int"]),
    "argnums too large": (ValueError, lambda: jacfwd(double, 1)(X), ["jacfwd: argnums 1", "1 positional arguments"]),
    "argnums too small": (
        ValueError,
        lambda: jacrev(double, (0, -3))(X, X),
        ["jacrev: argnums (0, -3)", "2 positional"],
    ),
    "argnums that is a word": (ValueError, lambda: jacrev(double, "x")(X), ["argnums 'x'"]),
    "the argument by keyword": (ValueError, lambda: jacrev(lambda x: x)(x=X), ["argnums 0", "0 positional arguments"]),
    "ints": (TypeError, lambda: jacrev(double)(WHOLE), ["jacrev: args[0] of shape (3, 4) is int", "only floats"]),
    "a word": (TypeError, lambda: jacfwd(double)("a"), ["jacfwd: args[0] is 'a' of type str"]),
    "a whole number in a dict": (
        TypeError,
        lambda: jacfwd(double)({"a": 1}),
        ["jacfwd: args[0]['a'] of shape () is int"],
    ),
    "a result that is no tensor": (TypeError, lambda: jacrev(lambda v: "a")(X), ["jacrev: the result is 'a' of type"]),
    "hessian of ints": (TypeError, lambda: hessian(double)(WHOLE), ["args[0] of shape (3, 4) is int"]),
    "mode": (ValueError, lambda: jacobian(double, X, "back"), ['jacobian: mode is "fwd", "rev" or None', "'back'"]),
    "jacobian of ints": (TypeError, lambda: jacobian(double, WHOLE), ["jacobian: x of shape (3, 4) is int"]),
    "jacobian of a result that is no tensor": (
        TypeError,
        lambda: jacobian(lambda v: [v, "a"], X),
        ["the result[1] is 'a'"],
    ),
    "jacobian of no function": (TypeError, lambda: jacobian(3, X), ["jacobian: the function is of type int"]),
    "jvp of no function": (TypeError, lambda: jvp(3, (X,), (X,)), ["jvp: the function is of type int"]),
    "hessian of no function": (TypeError, lambda: hessian("f"), ["hessian: the function is of type str"]),
}


@pytest.mark.parametrize("what", JACOBIAN)
def test_what_a_jacobian_cannot_take(what: str) -> None:
    error, call, facts = JACOBIAN[what]
    check(error, call, *facts)
