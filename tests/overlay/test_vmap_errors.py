"""What a user reads when a scope is used in a way that cannot work, and that the process still works after it."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from scopes import LOOP, OUTER, ZERO, assert_same, loop, make_range, numbers, vmap
from tinygrad import Tensor, UOp, dtypes
from tinygrad.uop.ops import AxisType, KernelInfo
from tinygrad_overlay.schedule._scopes import VmapScopeError

X = numbers(3, 4)


@pytest.fixture(autouse=True)
def _process_still_works():
    """After each test a vmapped program and an ordinary one give the right values."""
    yield
    x = Tensor(X)

    def softmax_of_stack(a: Tensor) -> Tensor:
        return Tensor.stack(a[:2].sum(), a[2:].sum())[[0, 1]].softmax()

    assert_same(vmap(softmax_of_stack)(x), loop(softmax_of_stack)(x))
    np.testing.assert_allclose((x * 2).sum(0).numpy(), (X * 2).sum(0), rtol=1e-5)


def a_range(size: int = 3, axis_type: AxisType = LOOP) -> UOp:
    return UOp.range(size, -1, axis_type)


# *** vargs: each a ValueError at the call

BAD_VMAPIN: dict[str, tuple[Callable[[], Tensor], str]] = {
    "a constant that is not 0": (
        lambda: Tensor(X).vmapin((a_range(), UOp.const(dtypes.index, 1))),
        r"RANGE or CONST 0 .*\(RANGE\(3\) rm1, 1\)",
    ),
    "a constant of another dtype": (
        lambda: Tensor(X).vmapin((a_range(), UOp.const(dtypes.int, 0))),
        r"RANGE or CONST 0 of dtypes.index, not .*dtypes.int",
    ),
    "None in place of 0": (lambda: Tensor(X).vmapin((a_range(), None)), r"RANGE or CONST 0 .*None"),
    "a bool": (lambda: Tensor(X).vmapin((a_range(), False)), r"RANGE or CONST 0 .*False"),
    "a tensor": (lambda: Tensor(X).vmapin((a_range(), Tensor(0))), r"RANGE or CONST 0"),
    "a variable": (lambda: Tensor(X).vmapin((UOp.variable("n", 0, 2), ZERO)), r"RANGE or CONST 0"),
    "too few vargs": (lambda: Tensor(X).vmapin((a_range(),)), r"shape \(3, 4\) has 2 axes, .* 1 entries"),
    "too many vargs": (lambda: Tensor(X).vmapin((a_range(), ZERO, ZERO)), r"shape \(3, 4\) has 2 axes, .* 3 entries"),
    "a RANGE of another size": (
        lambda: Tensor(X).vmapin((ZERO, a_range(3))),
        r"RANGE rm1 has size 3, but axis 1 of the input of shape \(3, 4\) has size 4",
    ),
    "a RANGE twice": (lambda: Tensor.ones(3, 3).vmapin((r := a_range(), r)), r"names a RANGE twice for shape \(3, 3\)"),
    "no RANGE": (lambda: Tensor(X).vmapin((ZERO, ZERO)), r"names no RANGE, so it maps no axis of shape \(3, 4\)"),
    "a scalar": (lambda: Tensor(1.0).vmapin(()), r"names no RANGE"),
    "a RANGE that is no tuple": (lambda: Tensor(X).vmapin(a_range()), r"must be a tuple"),
    "an int that is no tuple": (lambda: Tensor(X).vmapin(0), r"must be a tuple"),
    "a REDUCE range": (
        lambda: Tensor(X).vmapin((a_range(3, AxisType.REDUCE), ZERO)),
        r"RANGE rm1 must be LOOP or OUTER, not REDUCE, for shape \(3, 4\)",
    ),
    "a GLOBAL range": (
        lambda: Tensor(X).vmapin((a_range(3, AxisType.GLOBAL), ZERO)),
        r"RANGE rm1 must be LOOP or OUTER, not GLOBAL",
    ),
    "a RANGE of symbolic size": (
        lambda: Tensor(X).vmapin((UOp.range(UOp.variable("n", 1, 5), -1, LOOP), ZERO)),
        r"RANGE rm1 has size n, but axis 0 of the input of shape \(3, 4\) has size 3",
    ),
    "a RANGE of size 0": (
        lambda: Tensor.ones(0, 3).vmapin((a_range(0), ZERO)),
        r"size of RANGE rm1 must be a positive number, not 0",
    ),
    "the open RANGE again": (
        lambda: Tensor.ones(3, 3).vmapin((a_range(), ZERO)).vmapin((a_range(),)),
        r"RANGE rm1 is open already in the input of shape \(3,\)",
    ),
    "a sharded tensor": (
        lambda: Tensor(X).shard(("CPU:0", "CPU:1"), 1).vmapin((a_range(), ZERO)),
        r"sharded over .* cannot enter a vmap scope",
    ),
}

BAD_VMAPOUT: dict[str, tuple[Callable[[Tensor, UOp], Tensor], str]] = {
    "inner rank too large": (lambda v, r: v.vmapout((r,)), r"inner result of shape \(4,\) has 1 axes, .* 0 entries"),
    "inner rank too small": (
        lambda v, r: v.vmapout((r, ZERO, ZERO)),
        r"inner result of shape \(4,\) has 1 axes, .* 2 entries",
    ),
    "no RANGE": (lambda v, r: v.vmapout((ZERO,)), r"names no RANGE"),
    "a RANGE twice": (lambda v, r: v.vmapout((r, r, ZERO)), r"names a RANGE twice for shape \(4,\)"),
    "a RANGE that is no tuple": (lambda v, r: v.vmapout(r), r"must be a tuple"),
    "a constant that is not 0": (lambda v, r: v.vmapout((r, UOp.const(dtypes.index, 2))), r"RANGE or CONST 0"),
    "a REDUCE range": (
        lambda v, r: v.vmapout((UOp.range(3, -1, AxisType.REDUCE), ZERO)),
        r"must be LOOP or OUTER, not REDUCE",
    ),
}


@pytest.mark.parametrize("what", BAD_VMAPIN)
def test_vmapin_that_does_not_fit_is_a_value_error_at_the_call(what: str) -> None:
    call, message = BAD_VMAPIN[what]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("what", BAD_VMAPOUT)
def test_vmapout_that_does_not_fit_is_a_value_error_at_the_call(what: str) -> None:
    call, message = BAD_VMAPOUT[what]
    r = make_range(3)
    with pytest.raises(ValueError, match=message):
        call(Tensor(X).vmapin((r, ZERO)), r)


def test_the_uop_methods_check_too() -> None:
    with pytest.raises(ValueError, match=r"shape \(3, 4\) has 2 axes"):
        Tensor(X).uop.vmapin((a_range(),))
    with pytest.raises(ValueError, match=r"inner result of shape \(4,\)"):
        Tensor(X).uop.vmapin((r := a_range(), ZERO)).vmapout((r,))


def test_lists_and_the_int_0_are_taken_as_vargs() -> None:
    r = make_range(3)
    got = (Tensor(X).vmapin([r, 0]) * 2).vmapout((r, 0))
    np.testing.assert_array_equal(got.numpy(), X * 2)


# *** inside a scope: each a VmapScopeError, a sentence that says what, where and what to do

INSIDE: dict[str, Callable[[Tensor], object]] = {
    "realize": lambda v: v.realize(),
    "realize a computed value": lambda v: (v * 2).sum().realize(),
    "realize a contiguous value": lambda v: v.contiguous().realize(),
    "numpy": lambda v: v.numpy(),
    "item": lambda v: v[0].item(),
    "tolist": lambda v: v.tolist(),
    "data": lambda v: v.data(),
    "schedule": lambda v: v.schedule(),
    "masked_select": lambda v: v.masked_select(v > 0),
}


@pytest.mark.parametrize("axis_type", [LOOP, OUTER])
@pytest.mark.parametrize("what", INSIDE)
def test_a_value_inside_a_scope_cannot_be_realized(what: str, axis_type: AxisType) -> None:
    r = make_range(3, axis_type=axis_type)
    sentence = rf"cannot be realized: it is inside the vmap scope of {re.escape(r.render())} \(size 3\)"
    with pytest.raises(VmapScopeError, match=sentence + ".*leave the scope first, with VMAPOUT"):
        INSIDE[what](Tensor(X).vmapin((r, ZERO)))


def test_a_value_inside_a_scope_can_be_printed() -> None:
    assert "(4,)" in repr(Tensor(X).vmapin((a_range(), ZERO)))


def outside() -> Tensor:
    return Tensor.zeros(4).contiguous().realize()


def set_item(target: Tensor, index: object, value: object) -> None:
    target[index] = value  # type: ignore[index]


WRITES: dict[str, Callable[[Tensor], object]] = {
    "assign to a tensor from outside": lambda v: outside().assign(v),
    "assign to the mapped input": lambda v: v.assign(outside()),
    "setitem on a tensor from outside": lambda v: set_item(outside(), 0, v[0]),
    "setitem with a list on a tensor from outside": lambda v: set_item(outside(), [0, 1], v[:2]),
    "setitem at an index from the scope": lambda v: set_item(outside(), v.argmax(), 1.0),
    "setitem on the mapped input": lambda v: set_item(v, 0, 1.0),
    "setitem on a view of the mapped input": lambda v: set_item(v[1:], 0, 1.0),
    "setitem on a permuted view of the mapped input": lambda v: set_item(v.reshape(2, 2).T, 0, 1.0),
}


@pytest.mark.parametrize("what", WRITES)
def test_memory_from_outside_cannot_be_written_inside_a_scope(what: str) -> None:
    """Every element would write the same memory: silently the last one would win."""
    with pytest.raises(VmapScopeError, match=r"from outside the vmap scope of rm1 \(size 3\)"):
        WRITES[what](Tensor(X).vmapin((a_range(), ZERO)))


def test_the_outside_tensor_is_unchanged_after_a_refused_write() -> None:
    target = Tensor(np.arange(4, dtype=np.float32)).realize()
    with pytest.raises(VmapScopeError):
        target.assign(Tensor(X).vmapin((a_range(), ZERO)))
    with pytest.raises(VmapScopeError):
        target[1:3] = Tensor(X).vmapin((a_range(), ZERO))[1:3]
    np.testing.assert_array_equal(target.numpy(), np.arange(4))
    target[0] = 9
    np.testing.assert_array_equal(target.numpy(), [9, 1, 2, 3])


def add_one(out: UOp, inp: UOp) -> UOp:
    i = UOp.range(4, 0)
    return out[i].store(inp[i] + 1).end(i).sink(arg=KernelInfo(name="add_one"))


def test_a_custom_kernel_cannot_be_inside_a_scope() -> None:
    r = a_range()
    result = Tensor.custom_kernel(Tensor.empty(4), Tensor(X).vmapin((r, ZERO)), fxn=add_one)[0]
    with pytest.raises(VmapScopeError, match=r"custom kernel inside the vmap scope of rm1 \(size 3\)"):
        result.vmapout((r, ZERO)).numpy()


def test_a_value_cannot_be_sharded_inside_a_scope() -> None:
    with pytest.raises(VmapScopeError, match="sharded tensors cannot be in a scope"):
        Tensor(X).vmapin((a_range(), ZERO)).shard(("CPU:0", "CPU:1"), 0).realize()


def test_the_message_names_the_line_of_the_op_and_the_range_of_the_scope() -> None:
    """Two scopes open: both are named."""
    r, s = make_range(3), make_range(4)
    inner = Tensor(X).vmapin((r, ZERO)).vmapin((s,))
    with pytest.raises(VmapScopeError) as error:
        inner.numpy()
    assert f"{r.render()} (size 3)" in str(error.value)
    assert f"{s.render()} (size 4)" in str(error.value)


@pytest.mark.parametrize("index", [(slice(0, 1), [0, 1]), (1, [0, 1])], ids=["slice and list", "int and list"])
def test_setitem_that_mixes_lists_with_slices_or_ints_is_refused_or_right(index: tuple) -> None:
    def fn(a: Tensor) -> Tensor:
        z = a.reshape(2, 2) * 1
        z[index] = 5
        return z

    want = X.reshape(3, 2, 2).copy()
    for row in want:
        row[index] = 5
    try:
        got = vmap(fn)(Tensor(X)).numpy()
    except VmapScopeError:
        return
    np.testing.assert_array_equal(got, want)
