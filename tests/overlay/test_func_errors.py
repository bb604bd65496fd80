"""Every error of `tinygrad.func` and of scopes by hand: its type and its sentence."""

# the wrong arguments of these calls are what is tested
# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from refusals import Refusals, check_refusal, each_refusal, to_pattern
from scopes import LOOP, ZERO, make_range, numbers
from scopes import vmap as map_by_hand
from tinygrad import Tensor, UOp, Variable, dtypes
from tinygrad.func import grad, hessian, jacfwd, jacobian, jacrev, jvp, jvp_of, linearize, vjp, vmap
from tinygrad.uop.ops import AxisType, KernelInfo
from tinygrad_overlay.schedule._scopes import VmapScopeError

X = Tensor(numbers(3, 4))
Y = Tensor(numbers(5, 4))
WHOLE = Tensor(np.arange(12, dtype=np.int32).reshape(3, 4))


@pytest.fixture(autouse=True)
def _process_still_works() -> Any:
    """An error leaves nothing behind: no open scope, no function that seems to run still."""
    yield
    np.testing.assert_allclose(vmap(lambda v: v * 2)(X).numpy(), X.numpy() * 2)
    pairs = map_by_hand(lambda v: Tensor.stack(v[:2].sum(), v[2:].sum())[[0, 1]])(X).numpy()
    np.testing.assert_allclose(pairs, X.numpy().reshape(3, 2, 2).sum(2), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(jvp(lambda v: v * v, (X,), (X,))[1].numpy(), 2 * X.numpy() ** 2, rtol=1e-5)
    Tensor.rand(2).realize()


def of_symbolic_size() -> Tensor:
    return X[: Variable("n", 1, 3).bind(2)]


def set_int_and_list(v: Tensor) -> Tensor:
    z = v.reshape(2, 2) * 1
    z[1, [0, 1]] = 5
    return z


def double(v: Any, *_: Any, **__: Any) -> Any:
    return v * 2


# *** vmap: the options and the arguments

VMAP: Refusals = {
    TypeError: {
        "vmap: the function is 3 of type int": lambda: vmap(3)(X),
        "vmap: the function is of type Tensor": lambda: vmap(X),
        "in_axes ... int or None, not 1.0": lambda: vmap(double, in_axes=1.0)(X),
        "in_axes ... int or None, not True": lambda: vmap(double, in_axes=True)(X),
        "in_axes ... int or None, not 'x', for args[0]['w'][1]": lambda: vmap(double, in_axes=({"w": (0, "x")},))(
            {"w": (X, X)}
        ),
        "args[1] is 2.5 of type float ... axis 0 ... None in in_axes": lambda: vmap(double)(X, 2.5),
        "args[0][1] is of type ndarray ... axis 0": lambda: vmap(double)([X, np.array(["a", "b", "c"])]),
        "kwargs['scale'] is 2 of type int ... mapped over axis 0: bind it with functools.partial": lambda: vmap(double)(
            X, scale=2
        ),
    },
    ValueError: {
        "axis_type ... 'loop', 'outer' ... 'warp'": lambda: vmap(double, axis_type="warp"),
        "method ... 'ranges', 'pad_reduce' ... 'pad'": lambda: vmap(double, method="pad"),
        "chunk_size is a positive int, not 0": lambda: vmap(double, chunk_size=0),
        "randomness is one of 'error'": lambda: vmap(double, randomness="yes"),
        "axis_size is a positive int, not 0": lambda: vmap(double, axis_size=0),
        "axis_size is a positive int, not True": lambda: vmap(double, axis_size=True),
        "axis_size is a positive int, not 2.0": lambda: vmap(double, axis_size=2.0),
        "in_axes (0,) has 1 entries, but 2 positional arguments": lambda: vmap(double, in_axes=(0,))(X, X),
        "in_axes [0, None] has 2 entries, but 1 positional arguments": lambda: vmap(double, in_axes=[0, None])(X),
        "in_axes: (0, 1) does not fit args[0], which is a Tensor": lambda: vmap(double, in_axes=((0, 1),))(X),
        "in_axes: (0, 1) does not fit args[0], which is a tuple of 3": lambda: vmap(double, in_axes=((0, 1),))(
            (X, X, X)
        ),
        "in_axes: {'w': 0} does not fit args[0], which is a dict with the keys 'v'": lambda: vmap(
            double, in_axes=({"w": 0},)
        )({"v": X}),
        "axis 2 is out of range for args[0] of shape (3, 4) ... axes -2 to 1": lambda: vmap(double, in_axes=2)(X),
        "axis -3 is out of range for args[1] of shape (3, 4) ... axes -2 to 1": lambda: vmap(
            double, in_axes=(None, -3)
        )(X, X),
        "axis 0 is out of range for args[0] of shape () ... no axis ... None in in_axes": lambda: vmap(double)(
            Tensor(1.0)
        ),
        "chunk_size needs a batch of fixed size, not n=2": lambda: vmap(double, chunk_size=1)(of_symbolic_size()),
        "method 'pad_reduce' needs a batch of fixed size, not n=2": lambda: vmap(double, method="pad_reduce")(
            of_symbolic_size()
        ),
        "args[0] of shape (n=2, 4) has n=2 at axis 0 ... args[1] of shape (3, 4) has 3 at axis 0": lambda: vmap(double)(
            of_symbolic_size(), X
        ),
        "(n=2, 4) has n=2 at axis 0 ... (n=3, 4) has n=3 at axis 0": lambda: vmap(double)(
            of_symbolic_size(), X[: Variable("n", 1, 3).bind(3)]
        ),
        "axis 2 is out of range for args[0] of shape (n=2, 4)": lambda: vmap(double, in_axes=2)(of_symbolic_size()),
        "no argument is mapped ... in_axes ... axis_size": lambda: vmap(double, in_axes=None)(X),
        "no argument is mapped ... axis_size": lambda: vmap(lambda: X)(),
        "one size ... args[0] of shape (3, 4) has 3 at axis 0 ... args[1]['w'] of shape (5, 4) has 4 at axis 1 ... "
        "kwargs['bias'] of shape (5, 4) has 5 at axis 0": lambda: vmap(double, in_axes=(0, {"w": -1}, None))(
            X, {"w": Y}, Y, bias=Y
        ),
        "args[0] of shape (3, 4) has 3 at axis 0 ... axis_size is 7": lambda: vmap(double, axis_size=7)(X),
    },
    VmapScopeError: {
        "cannot mix an int or None with indices by tensors or lists": lambda: vmap(set_int_and_list)(X),
        "randomness='different' needs a batch of fixed size, not n=2": lambda: vmap(
            lambda v: v * Tensor.rand(4), randomness="different"
        )(of_symbolic_size()),
    },
}

RESULTS: Refusals = {
    TypeError: {
        "the result is 'word' of type str ... Tensors": lambda: vmap(lambda v: "word")(X),
        "the result['a'][1] is 'word' of type str ... Tensors": lambda: vmap(lambda v: {"a": (v, "word")})(X),
        "the result is of type UOp": lambda: vmap(lambda v: v.uop)(X),
        "out_axes ... int or None, not '0'": lambda: vmap(double, out_axes="0")(X),
    },
    ValueError: {
        "the result[1] of shape () depends on the batch of 3 ... out_axes, not None": lambda: vmap(
            lambda v: (v, v.sum()), out_axes=(0, None)
        )(X),
        "axis 2 in out_axes ... the result of shape (4,) ... 2 axes ... -2 to 1": lambda: vmap(double, out_axes=2)(X),
        "axis -3 in out_axes ... -2 to 1": lambda: vmap(double, out_axes=-3)(X),
        "axis 1 in out_axes ... shape () ... 1 axes ... -1 to 0": lambda: vmap(lambda v: v.sum(), out_axes=1)(X),
        "out_axes: (0,) does not fit the result, which is a tuple of 2": lambda: vmap(lambda v: (v, v), out_axes=(0,))(
            X
        ),
        "out_axes: [0] does not fit the result, which is a Tensor": lambda: vmap(double, out_axes=[0])(X),
    },
}


# *** inside the function that is mapped

REALIZED: dict[str, Callable[[Tensor], object]] = {
    "item": lambda v: v.sum().item(),
    "numpy": lambda v: v.numpy(),
    "tolist": lambda v: (v + 1).tolist(),
    "data": lambda v: v.data(),
    "schedule": lambda v: v.schedule(),
    "realize": lambda v: v.realize(),
    "realize a computed value": lambda v: v.exp().sum().realize(),
    "masked_select": lambda v: v.masked_select(v > 0),
    "assign of a realized value": lambda v: v.contiguous().realize().assign(v),
}


@pytest.mark.parametrize("options", [{}, {"axis_type": "outer"}, {"method": "pad_reduce"}], ids=str)
@pytest.mark.parametrize("what", REALIZED)
def test_a_value_of_the_batch_cannot_be_realized(what: str, options: Any) -> None:
    sentence = "cannot be realized: it is inside ... (size 3) ... leave the scope first, with VMAPOUT or as a result of"
    check_refusal(VmapScopeError, sentence, lambda: vmap(lambda v: (REALIZED[what](v), v)[1], **options)(X))


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
    sentence = "a Python `if` ... shape () ... size 3 ... Tensor.where"
    check_refusal(VmapScopeError, sentence, lambda: vmap(branch)(X))


def test_both_batches_are_named_if_two_are_open() -> None:
    call = lambda: vmap(lambda v: vmap(lambda s: s.realize())(v))(X)  # noqa: E731
    check_refusal(VmapScopeError, "cannot be realized ... size 3 ... size 4", call)


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

JVP: Refusals = {
    TypeError: {
        "primals and tangents are a tuple or a list ... a Tensor and a Tensor": lambda: jvp(double, X, X),
        "a tuple of 1 ... 'x'": lambda: jvp(double, (X,), {"x": X}),
        "primals[0] of shape () is int": lambda: jvp(double, (2,), (X,)),
        "primals[0] is 'a' of type str": lambda: jvp(double, ("a",), (X,)),
        "tangents[0] is 'a' of type str": lambda: jvp(double, (X,), ("a",)),
        "primals[0] of shape (3, 4) is int ... only floats": lambda: jvp(double, (WHOLE,), (X,)),
        "jvp: the result[1] is 'a' of type str": lambda: jvp(lambda v: (v, "a"), (X,), (X,)),
        "inputs of shape (3, 4) is int ... only floats": lambda: jvp_of(WHOLE * 2, WHOLE, WHOLE),
        "jvp_of: the result is 3 of type int": lambda: jvp_of(3, X, X),
    },
    ValueError: {
        "tangents is a tuple of 1 ... primals is a tuple of 2": lambda: jvp(double, (X, X), (X,)),
        "tangents[0]['b'] is a tuple of 3 ... primals[0]['b'] is a tuple of 2": lambda: jvp(
            double, ({"a": X, "b": (X, X)},), ({"a": X, "b": (X, X, X)},)
        ),
        "tangents[0] is a dict with the keys 'b' ... primals[0] is a dict with the keys 'a'": lambda: jvp(
            double, ({"a": X},), ({"b": X},)
        ),
        "tangents[0] is a Tensor ... primals[0] is a list of 1": lambda: jvp(double, ([X],), (X,)),
        "tangents[0] is None ... primals[0] is a Tensor": lambda: jvp(double, (X,), (None,)),
        "tangents[0] of shape (3, 4) ... primals[0] ... shape ()": lambda: jvp(double, (2.0,), (X,)),
        "tangents[0] of shape () ... (3, 4)": lambda: jvp(double, (X,), (1,)),
        "tangents[1] of shape (5, 4) and float ... primals[1] ... shape (3, 4) and float": lambda: jvp(
            double, (X, X), (X, Y)
        ),
        "tangents[0] of shape (3, 4) and double ... primals[0] ... float": lambda: jvp(
            double, (X,), (X.cast(dtypes.float64),)
        ),
        "tangents is a list of 1 ... inputs is a list of 2": lambda: jvp_of(X * 2, [X, X], [X]),
        "tangent ... (5, 4) ... (3, 4)": lambda: jvp_of(X * 2, X, Y),
        "inputs['a'] and inputs['b'] of shape (3, 4) are the same value": lambda: jvp_of(
            X * 2, {"a": X, "b": X}, {"a": X, "b": X}
        ),
        "inputs[1] of shape (5, 4) is not in the graph": lambda: jvp_of(X * 2, (X, Y), (X, Y)),
    },
    NotImplementedError: {
        "jvp: CUSTOM_KERNEL has no derivative rule": lambda: jvp(
            lambda v: Tensor.custom_kernel(Tensor.empty(4), v, fxn=add_one)[0], (X[0],), (X[0],)
        )
    },
}


@pytest.mark.parametrize("realize", [lambda v: v.numpy(), lambda v: (v * 2).sum().item(), lambda v: v.exp().realize()])
@pytest.mark.parametrize(
    "derivative",
    [lambda fn: jvp(fn, (X,), (X,)), lambda fn: jacrev(fn)(X), lambda fn: jacobian(fn, X), lambda fn: hessian(fn)(X)],
)
def test_an_input_of_a_function_that_is_differentiated_cannot_be_realized(derivative: Any, realize: Any) -> None:
    def fn(v: Tensor) -> Tensor:
        realize(v)
        return v.sum()

    sentence = "depends on an input of a function that is differentiated ... cannot be realized"
    check_refusal(RuntimeError, sentence, lambda: derivative(fn))


# *** the other derivatives

DERIVATIVES: Refusals = {
    TypeError: {
        "jacfwd: the function is of type int": lambda: jacfwd(3),
        "jacrev: args[0] of shape (3, 4) is int ... only floats": lambda: jacrev(double)(WHOLE),
        "jacfwd: args[0] is 'a' of type str": lambda: jacfwd(double)("a"),
        "jacfwd: args[0]['a'] of shape () is int": lambda: jacfwd(double)({"a": 1}),
        "jacrev: the result is 'a' of type": lambda: jacrev(lambda v: "a")(X),
        "args[0] of shape (3, 4) is int": lambda: hessian(double)(WHOLE),
        "jacobian: x of shape (3, 4) is int": lambda: jacobian(double, WHOLE),
        "the result[1] is 'a'": lambda: jacobian(lambda v: [v, "a"], X),
        "jacobian: the function is of type int": lambda: jacobian(3, X),
        "jvp: the function is of type int": lambda: jvp(3, (X,), (X,)),
        "hessian: the function is of type str": lambda: hessian("f"),
        "vjp: the function is of type int": lambda: vjp(3, X),
        "grad: ... only floats have a derivative": lambda: grad(lambda x: x)(3),
        "with has_aux the function returns a pair": lambda: grad(lambda x: x.sum(), has_aux=True)(X),
    },
    ValueError: {
        "jacfwd: argnums 1 ... 1 positional arguments": lambda: jacfwd(double, 1)(X),
        "jacrev: argnums (0, -3) ... 2 positional": lambda: jacrev(double, (0, -3))(X, X),
        "argnums 'x'": lambda: jacrev(double, "x")(X),
        "argnums 0 ... 0 positional arguments": lambda: jacrev(lambda x: x)(x=X),
        "grad: the result must be one float, not of shape (4,)": lambda: grad(double)(X[0]),
        "argnums 2 does not fit the 1": lambda: grad(lambda x: x.sum(), argnums=2)(X),
        "vjp: cotangent of shape (5, 4)": lambda: vjp(double, X)[1](Y),
        "linearize: tangents": lambda: linearize(lambda x, y: x * y, X, X)[1](X),
        'jacobian: mode is "fwd", "rev" or None ... \'back\'': lambda: jacobian(double, X, "back"),
    },
}


@each_refusal(VMAP, RESULTS, JVP, DERIVATIVES)
def test_what_it_cannot_take(error: type[Exception], sentence: str, call: Any) -> None:
    check_refusal(error, sentence, call)


# *** scopes by hand: vargs that do not fit are a ValueError at the call


def a_range(size: int = 3, axis_type: AxisType = LOOP) -> UOp:
    return UOp.range(size, -1, axis_type)


VMAPIN: Refusals = {
    ValueError: {
        "RANGE or CONST 0 ... (RANGE(3) rm1, 1)": lambda: X.vmapin((a_range(), UOp.const(dtypes.index, 1))),
        "RANGE or CONST 0 of dtypes.index, not ... dtypes.int": lambda: X.vmapin((a_range(), UOp.const(dtypes.int, 0))),
        "RANGE or CONST 0 ... None": lambda: X.vmapin((a_range(), None)),
        "RANGE or CONST 0 ... False": lambda: X.vmapin((a_range(), False)),
        "RANGE or CONST 0 ... <Tensor": lambda: X.vmapin((a_range(), Tensor(0))),
        "RANGE or CONST 0 ... DEFINE_VAR": lambda: X.vmapin((UOp.variable("n", 0, 2), ZERO)),
        "shape (3, 4) has 2 axes, ... 1 entries": lambda: X.vmapin((a_range(),)),
        "shape (3, 4) has 2 axes, ... 3 entries": lambda: X.vmapin((a_range(), ZERO, ZERO)),
        "RANGE rm1 has size 3, but axis 1 of the input of shape (3, 4) has size 4": lambda: X.vmapin(
            (ZERO, a_range(3))
        ),
        "names a RANGE twice for shape (3, 3)": lambda: Tensor.ones(3, 3).vmapin((r := a_range(), r)),
        "names no RANGE, so it maps no axis of shape (3, 4)": lambda: X.vmapin((ZERO, ZERO)),
        "names no RANGE": lambda: Tensor(1.0).vmapin(()),
        "must be a tuple of RANGE and CONST 0, not RANGE(3)": lambda: X.vmapin(a_range()),
        "must be a tuple of RANGE and CONST 0, not 0": lambda: X.vmapin(0),
        "RANGE rm1 must be LOOP or OUTER, not REDUCE, for shape (3, 4)": lambda: X.vmapin(
            (a_range(3, AxisType.REDUCE), ZERO)
        ),
        "RANGE rm1 must be LOOP or OUTER, not GLOBAL": lambda: X.vmapin((a_range(3, AxisType.GLOBAL), ZERO)),
        "RANGE rm1 has size n, but axis 0 of the input of shape (3, 4) has size 3": lambda: X.vmapin(
            (UOp.range(UOp.variable("n", 1, 5), -1, LOOP), ZERO)
        ),
        "size of RANGE rm1 must be a positive number, not 0": lambda: Tensor.ones(0, 3).vmapin((a_range(0), ZERO)),
        "RANGE rm1 is open already in the input of shape (3,)": lambda: (
            Tensor.ones(3, 3).vmapin((a_range(), ZERO)).vmapin((a_range(),))
        ),
        "sharded over ... cannot enter a vmap scope": lambda: X.shard(("CPU:0", "CPU:1"), 1).vmapin((a_range(), ZERO)),
    }
}

VMAPOUT: Refusals = {
    ValueError: {
        "inner result of shape (4,) has 1 axes, ... 0 entries": lambda v, r: v.vmapout((r,)),
        "inner result of shape (4,) has 1 axes, ... 2 entries": lambda v, r: v.vmapout((r, ZERO, ZERO)),
        "names no RANGE": lambda v, r: v.vmapout((ZERO,)),
        "names a RANGE twice for shape (4,)": lambda v, r: v.vmapout((r, r, ZERO)),
        "must be a tuple": lambda v, r: v.vmapout(r),
        "RANGE or CONST 0": lambda v, r: v.vmapout((r, UOp.const(dtypes.index, 2))),
        "must be LOOP or OUTER, not REDUCE": lambda v, r: v.vmapout((UOp.range(3, -1, AxisType.REDUCE), ZERO)),
    }
}


@each_refusal(VMAPIN)
def test_vmapin_that_does_not_fit_is_refused_at_the_call(error: type[Exception], sentence: str, call: Any) -> None:
    with pytest.raises(error, match=to_pattern(sentence)):
        call()


@each_refusal(VMAPOUT)
def test_vmapout_that_does_not_fit_is_refused_at_the_call(error: type[Exception], sentence: str, call: Any) -> None:
    r = make_range(3)
    inner = X.vmapin((r, ZERO))
    with pytest.raises(error, match=to_pattern(sentence)):
        call(inner, r)


def test_the_uop_methods_check_too() -> None:
    with pytest.raises(ValueError, match=r"shape \(3, 4\) has 2 axes"):
        X.uop.vmapin((a_range(),))
    with pytest.raises(ValueError, match=r"inner result of shape \(4,\)"):
        X.uop.vmapin((r := a_range(), ZERO)).vmapout((r,))


def test_lists_and_the_int_0_are_taken_as_vargs() -> None:
    r = make_range(3)
    got = (X.vmapin([r, 0]) * 2).vmapout((r, 0))
    np.testing.assert_array_equal(got.numpy(), X.numpy() * 2)


# *** inside a scope: each a VmapScopeError; test_func_errors.py and test_func_state.py have others


def test_a_value_inside_a_scope_can_be_printed() -> None:
    assert "(4,)" in repr(X.vmapin((a_range(), ZERO)))


def outside() -> Tensor:
    return Tensor.zeros(4).contiguous().realize()


def set_item(target: Tensor, index: object, value: object) -> None:
    target[index] = value  # type: ignore[index]


WRITES: dict[str, Callable[[Tensor], object]] = {
    "assign to the mapped input": lambda v: v.assign(outside()),
    "setitem with a list on a tensor from outside": lambda v: set_item(outside(), [0, 1], v[:2]),
    "setitem at an index from the scope": lambda v: set_item(outside(), v.argmax(), 1.0),
    "setitem on the mapped input": lambda v: set_item(v, 0, 1.0),
    "setitem on a view of the mapped input": lambda v: set_item(v[1:], 0, 1.0),
    "setitem on a permuted view of the mapped input": lambda v: set_item(v.reshape(2, 2).T, 0, 1.0),
}


@pytest.mark.parametrize("what", WRITES)
def test_memory_from_outside_cannot_be_written_inside_a_scope(what: str) -> None:
    """Every element would write the same memory: silently the last one would win."""
    with pytest.raises(VmapScopeError, match=r"that has no value for each element of the vmap scope of rm1 \(size 3\)"):
        WRITES[what](X.vmapin((a_range(), ZERO)))


def test_a_custom_kernel_cannot_be_inside_a_scope() -> None:
    r = a_range()
    result = Tensor.custom_kernel(Tensor.empty(4), X.vmapin((r, ZERO)), fxn=add_one)[0]
    with pytest.raises(VmapScopeError, match=r"custom kernel inside the vmap scope of rm1 \(size 3\)"):
        result.vmapout((r, ZERO)).numpy()


def test_a_value_cannot_be_sharded_inside_a_scope() -> None:
    with pytest.raises(VmapScopeError, match="sharded tensors cannot be in a scope"):
        X.vmapin((a_range(), ZERO)).shard(("CPU:0", "CPU:1"), 0).realize()
