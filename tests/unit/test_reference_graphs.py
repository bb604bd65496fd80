"""The reference on graphs: movement, reduces, products, writes, step ranges, memory. Against numpy; no tinygrad."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_graphs import Maker, count

from vmapdbg.child.compare.reference_values import ComparedGraph, ReferenceValues
from vmapdbg.reference import evaluate, plan
from vmapdbg.reference.arithmetic import InDouble, count_roundings
from vmapdbg.reference.graph import DEVICES, OpNode, Unknown
from vmapdbg.reference.plan import add_products
from vmapdbg.values.numbers import Array
from vmapdbg.values.tolerance import EPSILON, make_tolerance

ROOT = Path(__file__).parent.parent.parent

shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@pytest.fixture
def made() -> Maker:
    return Maker()


# *** movement


@given(shapes, st.data())
def test_movement_is_numpy_s(shape: tuple[int, ...], data: st.DataObject) -> None:
    made, a = Maker(), count(*shape)
    source = made.input(a, "float")
    axes = tuple(data.draw(st.permutations(range(len(shape)))))
    moved = made.view("permute", source, tuple(shape[axis] for axis in axes), axes)
    assert np.array_equal(made.numbers(moved), a.transpose(axes))
    begins = tuple(data.draw(st.integers(0, 2)) for _ in shape)
    ends = tuple(data.draw(st.integers(0, 2)) for _ in shape)
    wide = tuple(size + b + e for size, b, e in zip(shape, begins, ends, strict=True))
    padded = made.view("pad", source, wide, begins)
    assert np.array_equal(made.numbers(padded), np.pad(a, list(zip(begins, ends, strict=True))))
    assert np.array_equal(made.numbers(made.view("shrink", padded, shape, begins)), a)
    turned = tuple(axis for axis in range(len(shape)) if data.draw(st.booleans()))
    assert np.array_equal(made.numbers(made.view("flip", source, shape, turned)), np.flip(a, turned))


def test_axes_in_front_no_axes_and_a_shift_that_a_node_gives(made: Maker) -> None:
    parts = [made.input(count(2, 3, start=first), "float") for first in (0.0, 6.0)]
    stacked = made.add("stack", *parts, shape=(2, 2, 3))
    assert np.array_equal(made.numbers(stacked), count(2, 2, 3))
    wide = made.view("expand", made.input([[1.0], [2.0]], "float"), (3, 2, 4))
    assert made.numbers(wide).tolist() == [[[1.0] * 4, [2.0] * 4]] * 3
    assert made.numbers(wide).strides[0] == 0, "an expanded value is a view"
    # a scalar has no axes
    one = made.view("reshape", made.input([[3.0]], "float"), ())
    assert made.numbers(one).shape == ()
    assert made.numbers(made.view("expand", one, (2,))).tolist() == [3.0, 3.0]
    assert made.numbers(made.reduce("add", made.input([1.0, 2.0], "float"), (0,), keep=False)).item() == 3.0
    # another node gives the shift
    at = made.op("add", made.const(1, "int"), made.const(1, "int"))
    part = made.view("shrink", made.input(count(5), "float"), (2,), (None,), at)
    assert made.numbers(part).tolist() == [2.0, 3.0]


# *** reduces


@given(shapes, st.data())
def test_reduces_are_numpy_s(shape: tuple[int, ...], data: st.DataObject) -> None:
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    keep = data.draw(st.booleans())
    made, a = Maker(), count(*shape, start=1.0)
    for dtype in ("double", "int"):
        source = made.input(a, dtype)
        for op, function in (("add", np.sum), ("mul", np.prod), ("max", np.max)):
            with np.errstate(over="ignore"):
                right = function(a if dtype == "double" else a.astype(np.int32), axis=axes, keepdims=keep)
            found = made.numbers(made.reduce(op, source, axes, keep))
            assert np.array_equal(found, np.asarray(right).astype(found.dtype))


def test_sums_of_floats_are_rounded_once_integers_wrap_and_nothing_has_a_start(made: Maker) -> None:
    many = made.view("expand", made.input([[0.1]], "float"), (1, 100_000))
    (total,) = made.numbers(made.reduce("add", many, (1,), keep=False))
    assert total == np.float32(float(np.float32(0.1)) * 100_000)
    large = made.input([1e8, *[1.0] * 100, -1e8], "float")
    assert made.numbers(made.reduce("add", large, (0,))).tolist() == [100.0]
    assert made.numbers(made.reduce("add", made.input([200, 100], "uchar"), (0,))).tolist() == [44]
    flags = made.input([[1, 1], [0, 1], [0, 0]], "bool")
    assert made.numbers(made.reduce("add", flags, (1,), False)).tolist() == [True, True, False]
    assert made.numbers(made.reduce("mul", flags, (1,), False)).tolist() == [True, False, False]
    assert made.numbers(made.reduce("max", flags, (1,), False)).tolist() == [True, True, False]
    none = made.view("shrink", made.input([1.0, 2.0], "float"), (0,), (1,))
    assert made.numbers(made.reduce("add", none, (0,))).tolist() == [0.0]
    assert made.numbers(made.reduce("mul", none, (0,))).tolist() == [1.0]
    assert made.numbers(made.reduce("max", none, (0,))).tolist() == [-np.inf]


# *** products


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=5))
def test_a_sum_of_products_is_that_of_the_whole_product(axes: list[tuple[int, bool, bool, bool]]) -> None:
    """For each axis: its size, whether each operand varies along it, whether it is summed up."""
    shape = tuple(size for size, *_ in axes)
    chance = np.random.default_rng(1)
    x = np.broadcast_to(chance.standard_normal([size if left else 1 for size, left, _, _ in axes]), shape)
    y = np.broadcast_to(chance.standard_normal([size if right else 1 for size, _, right, _ in axes]), shape)
    summed = tuple(axis for axis, (*_, is_summed) in enumerate(axes) if is_summed)
    if not summed:
        return
    found = add_products(x, y, summed)
    assert found is not None
    assert np.allclose(found, (x * y).sum(summed, keepdims=True), rtol=1e-12, atol=1e-12)


def matmul(made: Maker, a: int, b: int, cast: str = "") -> tuple[int, int]:
    """Returns the product and its sum, as tinygrad has them."""
    (m, k), (_, n) = made.node(a).shape, made.node(b).shape
    x = made.view("expand", made.view("reshape", a, (m, k, 1)), (m, k, n))
    y = made.view("expand", made.view("reshape", b, (1, k, n)), (m, k, n))
    product = made.op("mul", x, y)
    summand = made.op("cast", product, dtype=cast) if cast else product
    return product, made.reduce("add", made.view("permute", summand, (k, m, n), (1, 0, 2)), (0,), keep=False)


@pytest.mark.parametrize("dtype", ["float", "double", "int"])
def test_a_product_that_is_only_summed_up_is_never_made(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "ROOM", 20_000_000)
    made, chance = Maker(), np.random.default_rng(2)
    a, b = chance.integers(-9, 9, (300, 200)), chance.integers(-9, 9, (200, 250))
    product, total = matmul(made, made.input(a, dtype), made.input(b, dtype))
    # the product has 15,000,000 elements
    (found,) = made.evaluator().evaluate([total])
    assert not isinstance(found, Unknown)
    assert np.array_equal(found.numbers, a @ b)
    (asked, _) = made.evaluator().evaluate([product, total])
    assert isinstance(asked, Unknown)
    assert "more than 19 MB" in str(asked)


def test_products_of_halves_are_summed_in_float_and_of_large_integers_exactly() -> None:
    made, chance = Maker(), np.random.default_rng(3)
    a = chance.standard_normal((4, 50)).astype(np.float16)
    b = chance.standard_normal((50, 3)).astype(np.float16)
    _, total = matmul(made, made.input(a, "half"), made.input(b, "half"), cast="float")
    assert np.allclose(made.numbers(total), a.astype(float) @ b.astype(float), rtol=1e-5, atol=1e-5)
    product = made.op("mul", made.input([2**62, 3], "long"), made.input([3, 2**61], "long"))
    total = made.numbers(made.reduce("add", product, (0,)))
    assert total.tolist() == [(3 * 2**62 + 3 * 2**61 + 2**63) % 2**64 - 2**63]


def test_an_element_taken_by_a_mask() -> None:
    """An index of tinygrad: the sum over all of where(position == index, value, 0)."""
    made, table = Maker(), count(6, 4)
    index = made.view("expand", made.view("reshape", made.input([5, 0, 3], "int"), (3, 1, 1)), (3, 6, 4))
    place = made.view("expand", made.view("reshape", made.input(range(6), "int"), (1, 6, 1)), (3, 6, 4))
    value = made.view("expand", made.view("reshape", made.input(table, "float"), (1, 6, 4)), (3, 6, 4))
    zero = made.const(0.0, "float", (3, 6, 4))
    mask = made.op("eq", index, place, dtype="bool")
    taken = made.reduce("add", made.op("where", mask, value, zero), (1,), keep=False)
    assert np.array_equal(made.numbers(taken), table[[5, 0, 3]])
    others = made.reduce("add", made.op("where", mask, zero, value), (1,), keep=False)
    assert np.array_equal(made.numbers(others), table.sum(0) - table[[5, 0, 3]])
    # what is not taken may be infinite
    mask = made.input([1, 0], "bool")
    chosen = made.op("where", mask, made.input([2.0, np.inf], "float"), made.const(0.0, "float", (2,)))
    assert made.numbers(made.reduce("add", chosen, (0,))).tolist() == [2.0]


# *** windows


def slide(made: Maker, source: int, window: int, step: int = 1) -> int:
    """Windows over the last axis, as tinygrad makes them: repeated, flattened, cut, split one element longer."""
    (*batch, size) = made.node(source).shape
    rows = (size - window) // step + 1
    times = -(-rows * (size + step) // size)
    wide = made.view("reshape", source, (*batch, 1, size))
    flat = made.view("reshape", made.view("expand", wide, (*batch, times, size)), (*batch, times * size))
    zeros = (0,) * (len(batch) + 1)
    cut = made.view("shrink", flat, (*batch, rows * (size + step)), zeros)
    split = made.view("reshape", cut, (*batch, rows, size + step))
    return made.view("shrink", split, (*batch, rows, window), (*zeros, 0))


@given(st.integers(2, 9), st.integers(1, 9), st.integers(1, 3), st.sampled_from([(), (2,)]))
def test_windows_are_a_view(size: int, window: int, step: int, batch: tuple[int, ...]) -> None:
    if window > size:
        return
    made, a = Maker(), count(*batch, size)
    slid = slide(made, made.input(a, "int"), window, step)
    right = np.lib.stride_tricks.sliding_window_view(a, window, axis=-1)[..., ::step, :]
    assert np.array_equal(made.numbers(slid), right)
    axis = len(batch) + 1
    assert np.array_equal(made.numbers(made.reduce("add", slid, (axis,), keep=False)), right.sum(-1))
    assert np.array_equal(made.numbers(made.reduce("add", slid, (axis - 1,), keep=False)), right.sum(-2))


def test_a_running_sum_of_many_takes_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "ROOM", 4_000_000)
    made, size = Maker(), 20_000
    ones = made.view("expand", made.const(1, "int", (1,)), (size,))
    padded = made.view("pad", ones, (2 * size - 1,), (size - 1,))
    total = made.reduce("add", slide(made, padded, size), (1,), keep=False)
    (found,) = made.evaluator().evaluate([total])
    assert not isinstance(found, Unknown), str(found)
    assert np.array_equal(found.numbers, np.arange(1, size + 1))


def test_what_only_looks_like_windows_is_made() -> None:
    made, a = Maker(), count(4, 3)
    flat = made.view("reshape", made.input(a, "int"), (12,))
    cut = made.view("shrink", flat, (8,), (0,))
    rows = made.view("shrink", made.view("reshape", cut, (2, 4)), (2, 2), (0, 0))
    assert np.array_equal(made.numbers(rows), a.ravel()[:8].reshape(2, 4)[:, :2])


# *** writes


def test_a_write_to_a_view_of_a_buffer() -> None:
    made, a = Maker(), count(4, 6)
    buffer = made.input(a, "float")
    part = made.view("flip", made.view("shrink", buffer, (2, 3), (1, 2)), (2, 3), (0,))
    written = made.op("assign", part, made.input(-count(2, 3), "float"))
    after = made.view("after", buffer, (4, 6), None, written)
    right = a.copy()
    right[1:3, 2:5][::-1] = -count(2, 3)
    assert np.array_equal(made.numbers(after), right)
    assert np.array_equal(made.numbers(written), -count(2, 3))
    # the buffer itself is what it was
    assert np.array_equal(made.numbers(buffer), a)


def test_a_write_through_a_bitcast_is_read_through_it(made: Maker) -> None:
    memory = made.graph.add(OpNode("buffer", "float", (2,)))
    made.graph.inputs[memory] = (made.keep(np.array([1.0, 2.0]), "float"),)
    bits = made.op("bitcast", memory, dtype="uint")
    four = made.input([0x40800000, 0x3F800000], "uint")
    stored = made.graph.add(OpNode("store", "uint", (2,), (bits, four)))
    after = made.graph.add(OpNode("after", "uint", (2,), (bits, stored)))
    assert made.numbers(after).tolist() == [0x40800000, 0x3F800000]
    seen = made.graph.add(OpNode("after", "float", (2,), (memory, stored)))
    assert made.numbers(seen).tolist() == [4.0, 1.0]
    # an assignment to known memory
    buffer = made.input([1.0, 2.0], "float")
    seen = made.op("bitcast", buffer, dtype="uint")
    written = made.op("assign", seen, made.input([0x40800000, 0x40400000], "uint"))
    assert made.numbers(made.view("after", buffer, (2,), None, written)).tolist() == [4.0, 3.0]
    # what is read through the same eyes has the bits that were written
    assert made.numbers(made.view("after", seen, (2,), None, written)).tolist() == [0x40800000, 0x40400000]


def test_a_write_to_a_repeated_number_is_to_memory_with_all_its_elements(made: Maker) -> None:
    """The state of an optimizer is a repeated zero when its first step is scheduled."""
    zeros = made.view("expand", made.const(0.0, "float", (1, 1)), (2, 2))
    written = made.op("store", zeros, made.input([[1.0, 2.0], [3.0, 4.0]], "float"))
    once = made.view("after", zeros, (2, 2), None, written)
    assert made.numbers(once).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    part = made.op("store", made.view("shrink", once, (1, 2), (1, 0)), made.const(9.0, "float", (1, 2)))
    assert made.numbers(made.view("after", once, (2, 2), None, part)).tolist() == [[1.0, 2.0], [9.0, 9.0]]


def test_writes_one_after_the_other_and_to_new_memory(made: Maker) -> None:
    buffer = made.input([0.0] * 4, "float")
    first = made.op("store", buffer, made.const(1.0, "float", (4,)))
    once = made.view("after", buffer, (4,), None, first)
    part = made.view("shrink", once, (2,), (1,))
    second = made.op("store", part, made.const(2.0, "float", (2,)))
    twice = made.view("after", once, (4,), None, second)
    assert made.numbers(twice).tolist() == [1.0, 2.0, 2.0, 1.0]
    assert made.numbers(made.view("after", part, (2,), None, second)).tolist() == [2.0, 2.0]
    assert made.numbers(once).tolist() == [1.0] * 4
    memory = made.graph.add(OpNode("buffer", "float", (4,)))
    seen = made.view("reshape", memory, (2, 2))
    whole = made.op("store", seen, made.input([[1.0, 2.0], [3.0, 4.0]], "float"))
    after = made.view("after", seen, (2, 2), None, whole)
    assert made.numbers(after).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    part = made.op("store", made.view("shrink", memory, (2,), (1,)), made.const(9.0, "float", (2,)))
    (found,) = made.evaluator().evaluate([made.view("after", memory, (4,), None, part)])
    assert isinstance(found, Unknown)
    both = made.view("after", made.view("after", memory, (4,), None, whole), (4,), None, part)
    assert made.numbers(both).tolist() == [1.0, 9.0, 9.0, 4.0]


# *** step ranges


def test_scopes_in_each_other() -> None:
    made, a, b = Maker(), count(2, 5), count(3, 5)
    made.graph.ranges.update({1: 2, 2: 3})
    one = made.graph.add(OpNode("vmapin", "float", (5,), (made.input(a, "float"),), (1, None)))
    other = made.graph.add(OpNode("vmapin", "float", (5,), (made.input(b, "float"),), (2, None)))
    total = made.reduce("add", made.op("mul", one, other), (0,), keep=False)
    assert made.value(total).ranges == (1, 2)
    left = made.graph.add(OpNode("vmapout", "float", (3,), (total,), (2,)))
    outer = made.graph.add(OpNode("vmapout", "float", (3, 2), (left,), (None, 1)))
    assert np.array_equal(made.numbers(outer), (a @ b.T).T)


def test_a_value_without_its_scope_and_a_reduce_over_a_step_range(made: Maker) -> None:
    made.graph.ranges[1] = 3
    outer = made.graph.add(OpNode("vmapout", "float", (3, 2), (made.input([1.0, 2.0], "float"),), (1, None)))
    assert made.numbers(outer).tolist() == [[1.0, 2.0]] * 3
    step = made.graph.add(OpNode("step", "int", (), (), (1, 3)))
    part = made.view("shrink", made.input(count(6), "float"), (2,), (None,), step)
    rows = made.graph.add(OpNode("vmapout", "float", (3, 2), (part,), (1, None)))
    assert made.numbers(rows).tolist() == [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]
    made.graph.ranges[4] = 3
    step = made.op("cast", made.graph.add(OpNode("step", "int", (), (), (4, 3))), dtype="float")
    total = made.graph.add(OpNode("reduce", "float", (), (step,), ("add", (), True, (4,))))
    assert made.numbers(total).item() == 3.0
    same = made.graph.add(OpNode("reduce", "float", (), (made.const(5.0, "float"),), ("add", (), True, (4,))))
    assert made.numbers(same).item() == 15.0


def test_devices(made: Maker) -> None:
    made.graph.ranges[DEVICES] = 2
    shards = made.sharded([[[1.0, 2.0]], [[3.0, 4.0]]], "float")
    whole = made.graph.add(OpNode("shards", "float", (2, 2), (shards,), 0))
    assert made.numbers(whole).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    side = made.graph.add(OpNode("shards", "float", (1, 4), (shards,), 1))
    assert made.numbers(side).tolist() == [[1.0, 2.0, 3.0, 4.0]]
    assert made.numbers(made.graph.add(OpNode("shard", "float", (1, 2), (shards,), 1))).tolist() == [[3.0, 4.0]]
    both = made.op("devices", made.input([1.0], "float"), made.input([5.0], "float"))
    total = made.graph.add(OpNode("reduce", "float", (1,), (both,), ("add", (), True, (DEVICES,))))
    assert made.numbers(total).tolist() == [6.0]
    written = made.op("assign", made.view("shrink", whole, (1, 2), (1, 0)), made.const(9.0, "float", (1, 2)))
    after = made.view("after", whole, (2, 2), None, written)
    assert made.numbers(after).tolist() == [[1.0, 2.0], [9.0, 9.0]]


# *** what it says of itself


def test_an_op_an_input_or_a_shape_that_is_not_known_is_not_compared(made: Maker) -> None:
    strange = made.op("wmma", made.const(1.0, "float"))
    read = made.op("add", strange, made.const(1.0, "float"))
    known = made.op("add", made.const(2.0, "float"), made.const(1.0, "float"))
    found = made.evaluator().evaluate([read, known])
    assert str(found[0]) == "nothing is known of the op wmma"
    assert not isinstance(found[1], Unknown)
    assert found[1].numbers == 3.0
    lost = made.graph.add(OpNode("buffer", "float", (2,)))
    with pytest.raises(Unknown, match="not known"):
        made.value(lost)
    # a release may take a UOp that is made by hand for another one: the others are still compared
    maker = Maker()
    source = maker.input(np.ones((3, 2)), "float")
    odd = maker.graph.add(OpNode("reduce", "float", (), (source,), ("add", (), True, ())))
    found = ReferenceValues(maker.graph, maker.contents.__getitem__).evaluate([odd, source])
    assert found[0] == "the reference makes a value of shape (3, 2) of it, where tinygrad says ()"
    assert not isinstance(found[1], str)


def test_what_the_reference_cannot_compute_costs_only_that_value(monkeypatch: pytest.MonkeyPatch, made: Maker) -> None:
    def fail(*_: object) -> None:
        raise AttributeError("no sign")

    one = made.const(1.0, "float", (2, 2))
    total = made.view("reduce", one, (2,), ("add", (0,), False, ()))
    flipped = made.view("flip", one, (2, 2), (0,))
    monkeypatch.setattr(evaluate, "move", fail)
    monkeypatch.setitem(plan._SHORTCUTS, "reduce", fail)  # pyright: ignore[reportPrivateUsage]
    found, why = made.evaluator().evaluate([total, flipped])
    assert not isinstance(found, Unknown)
    assert found.numbers.tolist() == [2, 2]
    assert "the reference failed at flip: no sign" in str(why)


def test_values_are_freed_after_their_last_reader(monkeypatch: pytest.MonkeyPatch, made: Maker) -> None:
    monkeypatch.setattr(evaluate, "ROOM", 16_000)
    chain = made.input(count(1000), "float")
    for _ in range(50):
        chain = made.op("add", chain, chain)
    # 50 values of 4,000 bytes, never more than three at a time
    (found,) = made.evaluator().evaluate([chain])
    assert not isinstance(found, Unknown), str(found)


def test_a_computed_value_is_not_computed_again(made: Maker) -> None:
    source = made.input(count(3), "float")
    first = made.op("add", source, source)
    second = made.op("add", first, first)
    evaluator = made.evaluator()
    evaluator.evaluate([first])
    made.contents.clear()
    (found,) = evaluator.evaluate([second])
    assert not isinstance(found, Unknown)
    assert found.numbers.tolist() == [0.0, 4.0, 8.0]


def test_in_double_nothing_is_rounded_and_with_a_seed_it_moves(made: Maker) -> None:
    third = made.op("fdiv", made.input([1.0], "half"), made.input([3.0], "half"))
    assert made.numbers(third).item() == np.float16(1 / 3)
    assert made.value(third, InDouble(made.graph)).numbers.item() == 1 / 3
    moved = [made.value(third, InDouble(made.graph, seed)).numbers.item() for seed in (1, 2, 3)]
    assert all(0 < abs(number - 1 / 3) < 2 * EPSILON["half"] for number in moved)


def test_what_is_exact_does_not_move(made: Maker) -> None:
    """3.0 as an integer is 3, and a wrong value beside it is no rounding."""
    small = made.input(np.array([3.0, -2.0, 0.5, 1024.0], np.float32), "float")
    total = made.reduce("add", made.op("mul", small, made.const(0.5, "float", (4,))), (0,))
    whole = made.op("cast", small, dtype="int")
    inexact = made.op("cast", made.op("mul", small, made.const(1 / 3, "float", (4,))), dtype="int")
    rounding = [InDouble(made.graph, seed) for seed in range(1, 9)]
    assert [made.value(total, one).numbers.item() for one in rounding] == [512.75] * 8
    assert [made.value(whole, one).numbers.tolist() for one in rounding] == [[3, -2, 0, 1024]] * 8
    assert {int(made.value(inexact, one).numbers[0]) for one in rounding} == {0, 1}


def test_a_whole_exponent_does_not_move(made: Maker) -> None:
    """A negative number to the power of 3.0000001 is NaN."""
    cube = made.op("pow", made.input(np.array([-0.3, 0.7], np.float32), "float"), made.const(3.0, "float", (2,)))
    moved = np.array([made.value(cube, InDouble(made.graph, seed)).numbers for seed in range(1, 9)])
    exact = made.value(cube, InDouble(made.graph)).numbers
    assert np.allclose(moved, exact, rtol=1e-6)
    assert len(np.unique(moved, axis=0)) > 1


def test_bits_of_a_rounded_number_move_by_its_rounding_and_others_stay(made: Maker) -> None:
    total = made.reduce("add", made.input(count(1, 100), "float"), (1,))
    bits = made.op("bitcast", total, dtype="int")
    right = made.numbers(bits).item()
    moved = [made.value(bits, InDouble(made.graph, seed)).numbers.item() for seed in (1, 2, 3)]
    # a sum of a hundred: ten times what one op rounds
    assert all(5 <= abs(number - right) <= 20 for number in moved)
    seen = made.op("bitcast", made.input([1.5], "float"), dtype="int")
    assert made.value(seen, InDouble(made.graph, 1)).numbers.item() == 0x3FC00000
    bits = made.input([0x3F8CCCCD], "uint")
    number = made.op("bitcast", bits, dtype="float")
    less = made.op("sub", number, made.const(1.0, "float", (1,)))
    right = made.numbers(less)
    assert np.allclose(made.value(less, InDouble(made.graph, 1)).numbers, right, rtol=1e-6)


def test_roundings_are_counted_in_units_of_their_dtype(made: Maker) -> None:
    _, total = matmul(made, made.input(count(2, 100), "float"), made.input(count(100, 2), "float"))
    assert count_roundings(made.graph)[total] == 101
    coarse = made.op("add", made.input([1.0], "half"), made.input([1.0], "half"))
    fine = made.op("cast", coarse, dtype="float")
    terms = count_roundings(made.graph)[fine]
    assert make_tolerance("float", terms, 1.0).relative > EPSILON["half"]
    back = made.op("cast", made.op("add", made.input([1.0], "float"), made.input([1.0], "float")), dtype="half")
    assert count_roundings(made.graph)[back] <= 2


def test_it_imports_no_tinygrad() -> None:
    """The reference shares nothing with what it judges."""
    for file in sorted((ROOT / "vmapdbg" / "reference").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                allowed = name.split(".")[0] in sys.stdlib_module_names or name.split(".")[0] == "numpy"
                assert allowed or name.startswith(("vmapdbg.reference.", "vmapdbg.values.")), (file.name, name)


def test_values_that_may_only_round_are_computed_precisely_in_one_go(made: Maker) -> None:
    """An optimizer assigns to a hundred buffers, and each of them needs the whole graph of the step."""
    # as floats the results are nearly exact by chance: only the moved computations show how inexact they are
    source = made.input(np.array([1.0000001, 2.0000002, 3.0000003], np.float32), "float")
    large = made.const(1e7, "float")
    sums = made.op("add", source, large)
    slots = [made.op("mul", made.op("sub", sums, large), made.const(float(n), "float")) for n in range(1, 9)]
    graph = ComparedGraph(made.graph, made.contents.__getitem__, [])
    graph.together = slots
    for slot, right in zip(slots, graph.values.evaluate(slots), strict=True):
        assert not isinstance(right, str)
        got = Array((np.frombuffer(right.data, np.float32) * np.float32(1.5)).tobytes(), right.dtype, right.shape)
        assert graph.compare(slot, got, right).status == "rounding"
    assert sum(values.evaluations for values in graph.opened) == 5
