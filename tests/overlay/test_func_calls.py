"""What an eager call of a vmapped function costs, and that what makes it cheap changes nothing."""

from __future__ import annotations

import cProfile
import hashlib
import pstats
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from scopes import ZERO, make_range, numbers, same
from tinygrad import Tensor, UOp
from tinygrad.engine.schedule import schedule_cache
from tinygrad.func import jvp, vmap
from tinygrad.uop import ops
from tinygrad.uop.ops import KernelInfo, Ops, range_start
from tinygrad_overlay import _state
from tinygrad_overlay.engine import schedule
from tinygrad_overlay.schedule import _scopes

X = numbers(4, 6, dtype=np.float64)
W = numbers(6, 6, dtype=np.float64)
Call = Callable[[Tensor], Tensor]


def chain(x: Tensor) -> Tensor:
    return (x * 2 + 1).sin().exp().relu() - 0.5


def slope(x: Tensor, axis: int) -> Tensor:
    return jvp(lambda v: (v * v).sum(axis).sqrt(), (x,), (x.sin(),))[1]


CALLS: dict[str, tuple[Call, Call]] = {
    "elementwise": (vmap(chain), chain),
    "matmul, softmax": (vmap(lambda x: (x @ Tensor(W)).softmax()), lambda x: (x @ Tensor(W)).softmax()),
    "nested": (vmap(vmap(lambda x: x.exp() * 2 + x)), lambda x: x.exp() * 2 + x),
    "jvp": (vmap(lambda x: slope(x, 0)), lambda x: slope(x, 1)),
    # a call that takes little else
    "sum": (vmap(lambda x: x.sum()), lambda x: x.sum(1)),
    "sum, then flipped": (lambda x: vmap(lambda v: v.sum())(x).flip(0) + 1, lambda x: x.sum(1).flip(0) + 1),
    "cumsum": (vmap(lambda x: x.cumsum()), lambda x: x.cumsum(1)),
}


def count_calls(call: Call, x: Tensor) -> int:
    """The Python calls of a call that finds its schedule in the cache: they are the same each time, seconds are not."""
    for _ in range(3):
        call(x).realize()
    profile = cProfile.Profile()
    profile.runcall(lambda: call(x).realize())
    return pstats.Stats(profile).total_calls  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_takes_no_more_steps_than_the_one_by_hand(name: str) -> None:
    ours, by_hand = CALLS[name]
    x = Tensor(X).realize()
    same(ours(x), by_hand(x).numpy())
    assert count_calls(ours, x) <= 1.1 * count_calls(by_hand, x)


def test_a_graph_without_scopes_is_not_searched_for_them_when_all_are_gone() -> None:
    x = Tensor(X).realize()
    y = vmap(lambda v: jvp(chain, (v,), (v,))[1])(x)
    assert len(_state.process.generated_ranges) == 1
    y.realize()
    assert not _state.process.generated_ranges
    assert not _state.process.marks


def test_what_others_have_of_the_graph_is_realized_with_it() -> None:
    """The walk that renames RANGEs for the cache finds the way back to the nodes of the program, on each call."""
    x = Tensor(X).realize()
    for _ in range(3):
        y = vmap(lambda v: vmap(lambda e: e * 2)(v) + v.sum())(x)
        z, flipped = y + 1, y.flip(0)
        Tensor.realize(y, z, flipped.contiguous())
        want = X * 2 + X.sum(1, keepdims=True)
        assert y.uop.base.op is z.uop.base.op is Ops.BUFFER
        same(y, want)
        same(z, want + 1)
        same(flipped, want[::-1])


def test_a_scope_by_hand_and_one_of_vmap_find_their_schedule() -> None:
    """The RANGE by hand has the id that vmap's would have in a schedule of its own."""
    x = Tensor(X).realize()
    rng = make_range(4, -1)

    def build() -> Tensor:
        by_hand = x.vmapin((rng, ZERO)).exp().vmapout((rng, ZERO))
        return by_hand + vmap(lambda v: v.sum() * v)(x)

    want = np.exp(X) + X.sum(1, keepdims=True) * X
    same(build(), want)
    size = len(schedule_cache)
    same(build(), want)
    assert len(schedule_cache) == size


@pytest.mark.parametrize("name", CALLS)
def test_one_walk_for_the_cache_is_as_stocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor(X).realize()
    once = CALLS[name][0](x).numpy()
    for walk in ("MAKES_KEY", "LEADS_BACK"):
        monkeypatch.setattr(schedule, walk, "no walk")
    np.testing.assert_array_equal(CALLS[name][0](x).numpy(), once)


def stock_ranges(u: UOp) -> list[UOp]:
    """What is open in a node, as tinygrad 0.12.0 says it: what is open in its sources, less what ends in it."""
    found = dict.fromkeys(r for s in u.src for r in s.ranges)
    for ended in u.ended_ranges if u.op in range_start or u.op is Ops.AFTER else ():
        for r in [ended] if ended.op is Ops.RANGE else ended.ranges:
            found.pop(r, None)
    return [u, *found] if u.op is Ops.RANGE else list(found)


def test_open_ranges_equal_stock() -> None:
    x = Tensor(X).realize()

    def step(v: Tensor) -> Tensor:
        return vmap(lambda e: (e * v).sum(), method="pad_reduce")(v) + jvp(chain, (v,), (v,))[1].sum().gradient(v)[0]

    y = vmap(step)(x)
    kernels = [item.ast for item in vmap(step)(x).schedule() if item.ast.op is Ops.SINK]
    for root in (y.uop, *kernels):
        nodes = root.toposort()
        ranges = [u for u in nodes if u.op is Ops.RANGE]
        for u in nodes:
            assert list(u.ranges) == stock_ranges(u)
            assert [r for r in ranges if _scopes.is_open(r, u)] == [r for r in ranges if r in u._ranges]


def test_the_scope_of_a_value_deep_in_a_graph_is_found() -> None:
    def deep(v: Tensor) -> Tensor:
        constant = Tensor.ones(6, dtype="double")
        for _ in range(2 * _scopes.LOOKED_AT):
            constant = constant.sin()
        return constant * v

    want = 1.0
    for _ in range(2 * _scopes.LOOKED_AT):
        want = np.sin(want)
    same(vmap(deep)(Tensor(X)), want * X)
    with pytest.raises(ValueError, match="depends on the batch"):
        vmap(deep, out_axes=None)(Tensor(X))


def test_what_a_node_has_is_what_stock_finds() -> None:
    """A value is known with its sources, or found in a walk over all that is not: a graph of any depth has it."""
    y = vmap(lambda v: (v.reshape(2, 3).sum(0) * v[:3]).cast("float"))(Tensor(X).realize())
    u = y.uop
    for _ in range(3000):
        # nothing asks in between
        u = UOp(Ops.NEG, u.dtype, (u,))
    assert (u.shape, u.device, u.ranges) == (y.uop.shape, y.uop.device, {})
    for node in u.toposort():
        assert UOp._shape.fxn(node) == node._shape
        assert UOp._device.fxn(node) == node._device


def test_the_key_of_a_schedule_in_the_cache_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor(X).realize()
    ours = CALLS["elementwise"][0]
    ours(x).realize()
    hashed: list[bytes] = []

    def note(data: bytes) -> object:
        hashed.append(data)
        return hashlib.sha256(data)

    monkeypatch.setattr(ops, "hashlib", SimpleNamespace(sha256=note))
    ours(x).realize()
    assert not hashed
    ours(Tensor(X[:2]).realize()).realize()
    assert hashed


def test_a_write_and_its_scope_find_their_way_back() -> None:
    """The walk back replaces the key's nodes by the program's nodes, and makes new buffers."""
    x = Tensor(X).realize()
    for i in range(3):
        target = Tensor.zeros(4, 6, dtype="double").contiguous().realize()
        view = target[1:3]
        target.assign(vmap(lambda v, i=i: v * (i + 1))(x))
        Tensor.realize(target, x.sum(0))
        same(target, X * (i + 1))
        same(view + 0, (X * (i + 1))[1:3])


def twice(out: UOp, given: UOp) -> UOp:
    i = UOp.range(4, 0)
    return out[i].store(given[i] * 2).end(i).sink(arg=KernelInfo(name="twice"))


def test_a_kernel_that_a_tensor_has_already_is_replaced_for_it() -> None:
    """Of a schedule in the cache the kernels that it makes are left out of the way back, but not one from before it."""
    for i in range(3):
        given = (Tensor(X[:, 0]) + i).realize()
        doubled = Tensor.custom_kernel(Tensor.empty(4, dtype="double"), given, fxn=twice)[0]
        y = vmap(lambda v: v.exp() + 1)(doubled)
        assert doubled.uop.op is Ops.AFTER
        Tensor.realize(y, y.sum().contiguous())
        assert y.uop.base.op is doubled.uop.base.op is Ops.BUFFER
        same(doubled, (X[:, 0] + i) * 2)
        same(y, np.exp((X[:, 0] + i) * 2) + 1)


def notes_of(y: Tensor) -> dict[Ops, set[str]]:
    found: dict[Ops, set[str]] = {}
    for u in y.uop.toposort():
        for note in u.metadata or ():
            found.setdefault(u.op, set()).add(note.name)
    return found


def test_each_node_is_noted_as_made_by_its_method() -> None:
    found = notes_of(vmap(lambda v: v.sin().exp2())(Tensor(X)))
    assert found[Ops.VMAPIN] == {"vmapin"}
    assert found[Ops.VMAPOUT] == {"vmapout"}
    assert found[Ops.SIN] == {"sin"}
    assert found[Ops.EXP2] == {"exp2"}


def test_a_method_that_raised_is_not_noted_for_later_nodes() -> None:
    x = Tensor(X)
    with pytest.raises(ValueError, match="size mismatch"):
        x.reshape(7)
    assert notes_of(x.sin())[Ops.SIN] == {"sin"}

    def fails(v: Tensor) -> Tensor:
        return v.matmul(Tensor.ones(5))

    with pytest.raises(RuntimeError):
        vmap(fails)(x)
    found = notes_of(vmap(lambda v: v.sin())(x))
    assert found[Ops.SIN] == {"sin"}
    assert found[Ops.VMAPIN] == {"vmapin"}
