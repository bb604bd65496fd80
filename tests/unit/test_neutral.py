"""What means the same in two releases is the same in their diff: one small pair of captures for each thing that was
renamed, and for each a difference that must still show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from captures import make_capture, make_kernel, make_node, make_schedule

from vmapdbg.diff.captures import diff_captures
from vmapdbg.diff.neutral import read_neutrally
from vmapdbg.diff.nodes import match_nodes
from vmapdbg.diff.result import CaptureDiff, ScheduleDiff
from vmapdbg.diff.source import canonize_source, unify_float
from vmapdbg.model.capture import Bufferize, Capture, Condition, Decision, Node, Range, Realized, Reason, Versions
from vmapdbg.model.vocabulary import AxisType

OLD, NEW = (Versions("0.1.0", version, "3.11.7") for version in ("0.12.0", "0.14.0"))


def output(*axes: int) -> Realized:
    return Realized(axes, "output", "", (Reason("output"),))


def stored(*axes: int) -> Realized:
    return Realized(axes, "always", "", (Reason("always"),))


def at(line: int, text: str = "return None") -> Decision:
    return Decision("schedule/rangeify.py", line, "remove_bufferize", text, (Condition(line, "a > 3", True, {}),))


def make(nodes: tuple[Node, ...], *, names: AxisType = "LOOP", **changes: Any) -> Capture:
    """A capture observed of the older release; `names` is what it calls the axis type of a loop."""
    used = sorted({name for node in nodes for name in (*(node.in_ranges or ()), *(node.out_ranges or ()))} - {"0"})
    ranges = tuple(Range(name, 4, names, False) for name in used)
    schedule = replace(make_schedule(nodes=nodes, ranges=ranges), **changes)
    return make_capture(schedule, versions=OLD, mode="observe", patches={})


def compare(before: Capture, after: Capture) -> tuple[CaptureDiff, ScheduleDiff]:
    """Compares two captures; the second is of another release."""
    diff = diff_captures(before, replace(after, versions=NEW))
    (schedule,) = diff.schedules
    return diff, schedule


def old_sum(**changes: Any) -> tuple[Node, ...]:
    """x / x.sum(1), with an EXPAND, and a buffer for the output."""
    reduce = make_node(
        2, "REDUCE_AXIS", (4, 1), src=(1,), in_ranges=("r2", "r3"), out_ranges=("r2", "0"), arg="ADD (1,)"
    )
    return (
        make_node(0, "BUFFER", (24,), arg="24"),
        make_node(1, "RESHAPE", (4, 6), src=(0,), ranges=("r0", "r1"), arg="(4, 6)"),
        replace(reduce, **changes),
        make_node(3, "EXPAND", (4, 6), src=(2,), in_ranges=("r0", "0"), out_ranges=("r0", "r1"), arg="(4, 6)"),
        make_node(4, "CONST", (), arg="2.0"),
        make_node(5, "RESHAPE", (1, 1), src=(4,), arg="(1, 1)"),
        make_node(6, "EXPAND", (4, 6), src=(5,), arg="(4, 6)"),
        make_node(7, "MUL", (4, 6), src=(3, 6), ranges=("r0", "r1")),
        make_node(8, "ADD", (4, 6), src=(1, 7), ranges=("r0", "r1"), realized=output(0, 1)),
    )


def new_sum(order: str = "(1, 0)", **changes: Any) -> tuple[Node, ...]:
    """The same, broadcast by its readers, its reduced axis in front, and stored to an argument."""
    return (
        make_node(0, "PARAM", (24,), arg="slot 0"),
        make_node(1, "RESHAPE", (4, 6), src=(0,), ranges=("r0", "r1"), arg="(4, 6)"),
        make_node(2, "PARAM", (24,), arg="slot 1"),
        make_node(3, "RESHAPE", (4, 6), src=(2,), ranges=("r0", "r1"), arg="(4, 6)"),
        make_node(4, "PERMUTE", (6, 4), src=(3,), in_ranges=("r2", "r3"), out_ranges=("r3", "r2"), arg=order),
        make_node(5, "REDUCE", (4,), src=(4,), in_ranges=("r3", "r2"), out_ranges=("r2",), arg="ADD (0,)", **changes),
        make_node(6, "RESHAPE", (4, 1), src=(5,), in_ranges=("r0",), out_ranges=("r0", "0"), arg="(4, 1)"),
        make_node(7, "CONST", (), dtype="weakfloat", arg="2.0"),
        make_node(8, "MUL", (4, 1), src=(6, 7), ranges=("r0", "0")),
        make_node(9, "ADD", (4, 6), src=(3, 8), ranges=("r0", "r1")),
        make_node(10, "STORE", (4, 6), dtype="void", src=(1, 9), ranges=("r0", "r1"), realized=stored(0, 1)),
        make_node(11, "AFTER", (24,), src=(0, 10)),
    )


def test_another_spelling_of_the_same_graph_is_not_a_change() -> None:
    """Broadcasts, the reduced axes, weak constants, the output, the memory, the axis type: all at once."""
    diff, schedule = compare(make(old_sum()), make(new_sum(), names="WEAK"))
    assert diff.is_empty
    pairs = {0: 2, 1: 3, 2: 5, 4: 7, 7: 8, 8: 9}
    assert [(item.before, item.after) for item in schedule.same_nodes] == list(pairs.items())
    assert [node.id for node in schedule.folded_before] == [3, 5, 6]
    assert [node.op for node in schedule.folded_after] == ["PARAM", "RESHAPE", "PERMUTE", "RESHAPE", "AFTER"]


def test_a_reduce_without_an_argument_or_a_shape_is_compared() -> None:
    """A reduce over an OUTER range has no argument in a capture of tinygrad 0.12, and no shape in one of 0.13: it is
    paired by what reads it."""
    bare = tuple(replace(node, arg="") if node.op == "REDUCE_AXIS" else node for node in old_sum())
    _, schedule = compare(make(bare), make(new_sum()))
    assert (2, 5) in [(item.before, item.after) for item in schedule.same_nodes]
    bare = tuple(replace(node, arg="ADD ()", shape=()) if node.op == "REDUCE" else node for node in new_sum())
    _, schedule = compare(make(old_sum()), make(bare))
    assert (1, 3) in [(item.before, item.after) for item in schedule.same_nodes]


def test_what_reads_it_the_other_way_round_is_a_change() -> None:
    swapped = tuple(replace(node, src=(8, 3)) if node.op == "ADD" else node for node in new_sum())
    _, schedule = compare(make(old_sum()), make(swapped))
    assert not [item for item in schedule.same_nodes if item.op == "ADD"] or schedule.nodes == ()


@pytest.mark.parametrize(("field", "value"), [("arg", "MAX (0,)"), ("arg", "ADD (1,)"), ("dtype", "int")])
def test_another_reduce_is_another_node(field: str, value: str) -> None:
    """It is paired with its counterpart, because it is in the same place; its kernel shows that it differs."""
    other = tuple(replace(node, **{field: value}) if node.op == "REDUCE" else node for node in new_sum())
    before, after = (read_neutrally(side.schedules[0]).compared for side in (make(old_sum()), make(other)))
    assert (2 in match_nodes(before, after)) == (field == "dtype")


def test_a_realized_node_keeps_its_name_and_the_reason_may_name_other_readers() -> None:
    ends = Realized((0,), "ending-ranges", "r1 ends at ADD 9", (Reason("ending-ranges", (9,), ("r1",)),))
    diff, schedule = compare(make(old_sum()), make(new_sum(realized=ends)))
    (change,) = schedule.nodes
    assert (change.before.op, change.after.op, change.changed) == ("REDUCE_AXIS", "REDUCE", ("realized",))
    assert change.after.realized == ends
    assert not diff.is_empty
    # r1 ends at the EXPAND, or at what broadcasts in its place, and on another line of tinygrad's source
    old = Realized((0, 1), "ending-ranges", "", (Reason("ending-ranges", (3,), ("r1",), at=at(240)),))
    new = Realized((0,), "ending-ranges", "", (Reason("ending-ranges", (9,), ("r1",), at=at(278)),))
    assert compare(make(old_sum(realized=old)), make(new_sum(realized=new)))[0].is_empty
    other = replace(new, reason="consumers-disagree")
    assert not compare(make(old_sum(realized=old)), make(new_sum(realized=other)))[0].is_empty


def bufferize(node: int, closed: tuple[str, ...], rule: Any = "few-buffers", **changes: Any) -> Bufferize:
    made = Bufferize(node, closed, (), 4, 32, "GLOBAL", "kept", "", decided=Reason(rule, at=at(218)))
    return replace(made, **changes)


def realize_sum(closed: tuple[str, ...], **changes: Any) -> tuple[Capture, Capture]:
    old, new = (Realized(axes, "ending-ranges", "") for axes in ((0, 1), (0,)))
    before = make(old_sum(realized=old), bufferizes=(bufferize(2, ("r2", "0")), bufferize(8, ("r0", "r1"), "output")))
    return before, make(new_sum(realized=new), bufferizes=(bufferize(5, closed, **changes),))


def test_a_buffer_has_its_twin_of_the_same_size_and_an_output_needs_none() -> None:
    diff, schedule = compare(*realize_sum(("r2",)))
    assert diff.is_empty
    (item,) = schedule.bufferizes
    assert item.before is not None
    assert item.after is not None
    assert (item.before.closed_ranges, item.after.closed_ranges) == (("r2", "0"), ("r2",))
    # another size is a change
    _, schedule = compare(*realize_sum(("r2",), size=24, bytes=192))
    (item,) = schedule.bufferizes
    assert item.changed == ("size", "bytes")
    # how large it would have been depends on whether the value was broadcast before it or behind it
    before, after = realize_sum(("r2",), outcome="removed", size=24, bytes=192)
    removed = [replace(item, outcome="removed") for item in before.schedules[0].bufferizes[:1]]
    gone = replace(before, schedules=(replace(before.schedules[0], bufferizes=tuple(removed)),))
    assert compare(gone, after)[0].is_empty


def test_another_line_of_a_rule_is_not_a_change_but_another_rule_is() -> None:
    assert compare(*realize_sum(("r2",), decided=Reason("few-buffers", at=at(288))))[0].is_empty
    assert not compare(*realize_sum(("r2",), decided=Reason("many-buffers", at=at(218))))[0].is_empty
    unnamed = [Reason("decided-at", at=at(line, text)) for line, text in ((1, "return a"), (2, "return a"), (2, "b"))]
    before, _ = realize_sum(("r2",))
    made = [replace(before.schedules[0].bufferizes[0], decided=reason) for reason in unnamed]
    sides = [make(old_sum(), bufferizes=(item,)) for item in made]
    assert diff_captures(sides[0], replace(sides[1], versions=NEW)).is_empty
    assert not diff_captures(sides[0], replace(sides[2], versions=NEW)).is_empty


# *** one thing at a time

X = make_node(0, "BUFFER", (8,), arg="8")
Y = make_node(1, "BUFFER", (8,), arg="8")
PX, PY = (replace(node, op="PARAM", arg=f"slot {node.id}") for node in (X, Y))
END = {"ranges": ("r0",), "realized": output(0)}


def binary(op: str, *sources: int, id: int = 9, **changes: Any) -> Node:
    """A node of 8 elements; the last of a graph, with id 9, is its output."""
    realized = output(0) if id == 9 else None
    return make_node(id, op, (8,), src=sources, **{"ranges": ("r0",), "realized": realized, **changes})


def shrink(source: int, arg: str, **changes: Any) -> Node:
    return make_node(9, "SHRINK", (3,), src=(source,), arg=arg, **END, **changes)


ROOT_OF_X, ROOT_OF_Y = (binary("SQRT", source, id=2) for source in (0, 1))
DIFFERS = binary("CMPNE", 0, 1, id=2, dtype="bool")
AS_INT = binary("CAST", 2, id=3, dtype="int")
THERE = make_node(1, "RESHAPE", (2, 4), src=(0,), arg="(2, 4)")
BACK = make_node(2, "RESHAPE", (8,), src=(1,), arg="(8)")
NUMBER = make_node(1, "CONST", (), dtype="float", arg="1.0")


def after(source: int, **changes: Any) -> Node:
    return make_node(10, "AFTER", (8,), src=(source, 9), **changes)


SAME = {
    "the memory's name": ((X, Y, binary("ADD", 0, 1)), (PX, PY, binary("ADD", 0, 1))),
    "integer division": ((X, Y, binary("IDIV", 0, 1)), (PX, PY, binary("CDIV", 0, 1))),
    "remainder": ((X, Y, binary("MOD", 0, 1)), (PX, PY, binary("CMOD", 0, 1))),
    "an assignment": ((X, Y, ROOT_OF_Y, binary("ASSIGN", 0, 2)), (PX, PY, ROOT_OF_Y, binary("STORE", 0, 2), after(0))),
    "a contiguous output": (
        (X, ROOT_OF_X, binary("CONTIGUOUS", 2, realized=stored(0))),
        (PX, PY, ROOT_OF_X, binary("STORE", 1, 2), after(1)),
    ),
    "a truth value that was a number": (
        (X, Y, DIFFERS, AS_INT, binary("CAST", 3, id=4, dtype="bool"), binary("WHERE", 4, 0, 1)),
        (PX, PY, DIFFERS, binary("WHERE", 2, 0, 1)),
    ),
    "where a shrink begins and ends": ((X, shrink(0, "((3, 6))")), (PX, shrink(0, "((3, 3))"))),
    "a reshape there and back": ((X, binary("SQRT", 0)), (PX, THERE, BACK, binary("SQRT", 2))),
    "a number's dtype": (
        (X, NUMBER, binary("ADD", 0, 1)),
        (PX, replace(NUMBER, dtype="weakint", arg="1"), binary("ADD", 0, 1)),
    ),
}


@pytest.mark.parametrize("what", SAME)
def test_means_the_same(what: str) -> None:
    before, after = SAME[what]
    diff, schedule = compare(make(before), make(after))
    assert diff.is_empty, schedule
    # the other way round, too
    assert diff_captures(make(after), replace(make(before), versions=NEW)).is_empty


WIDE = {"ranges": ("r0", "r1"), "realized": output(0, 1)}
OTHER = {
    "another begin": ((X, shrink(0, "((3, 6))")), (PX, shrink(0, "((2, 3))"))),
    "floor division": ((X, Y, binary("IDIV", 0, 1)), (PX, PY, binary("FLOORDIV", 0, 1))),
    "a store to a part": (
        (X, Y, ROOT_OF_Y, binary("ASSIGN", 0, 2)),
        (
            replace(PX, shape=(16,)),
            PY,
            ROOT_OF_Y,
            make_node(3, "SHRINK", (8,), src=(0,), arg="((0, 8))"),
            binary("STORE", 3, 2),
        ),
    ),
    "a cast that counts": (
        (X, binary("CAST", 0, id=2, dtype="int"), binary("CAST", 2, dtype="double")),
        (PX, ROOT_OF_X, binary("CAST", 2, dtype="double")),
    ),
    "a transposed operand": (
        (
            make_node(0, "BUFFER", (4, 4), arg="16"),
            make_node(1, "PERMUTE", (4, 4), src=(0,), arg="(1, 0)"),
            make_node(9, "ADD", (4, 4), src=(0, 1), **WIDE),
        ),
        (make_node(0, "PARAM", (4, 4), arg="slot 0"), make_node(9, "ADD", (4, 4), src=(0, 0), **WIDE)),
    ),
}


@pytest.mark.parametrize("what", OTHER)
def test_means_something_else(what: str) -> None:
    before, after = (read_neutrally(make(nodes).schedules[0]).compared for nodes in OTHER[what])
    assert len(match_nodes(before, after)) < len(after.nodes)


def test_a_constant_in_a_buffer_is_a_buffer() -> None:
    """What reads it is computed, and no constant itself."""
    one = make_node(0, "CONST", (), arg="1.0")
    wide = make_node(1, "EXPAND", (8,), src=(0,), arg="(8)")
    before = (one, wide, binary("CONTIGUOUS", 1, id=2, realized=stored(0)), binary("ADD", 2, 2))
    after = (PX, replace(one, id=1), replace(wide, id=2, src=(1,)), binary("STORE", 0, 2, id=3, realized=stored(0)))
    after = (*after, make_node(4, "AFTER", (8,), src=(0, 3)), binary("ADD", 4, 4))
    diff, schedule = compare(make(before), make(after))
    assert diff.is_empty
    assert [item.op for item in schedule.same_nodes] == ["CONST", "STORE", "ADD"]


# *** kernels


def test_kernels_are_compared_by_what_they_do() -> None:
    """Each release has other keys, names its registers otherwise, and writes the digits of a number otherwise."""
    old = "void f(float* restrict data0_8, int core_id) {\n  float acc0[1];\n  *(acc0+0) = 0.025f;\n}"
    new = "void g(float* restrict data0_8) {\n  float buf0[1];\n  *(buf0+0) = 0.02500000037252903f;\n}"
    before = make((X, binary("SQRT", 0)), kernels=(make_kernel("f", old, outputs=(9,), nodes=(9,), key="aa"),))
    after = make((PX, binary("SQRT", 0)), kernels=(make_kernel("g", new, outputs=(9,), nodes=(9,), key="bb"),))
    assert compare(before, after)[0].is_empty
    wrong = new.replace("0.025", "0.035")
    other = make((PX, binary("SQRT", 0)), kernels=(make_kernel("g", wrong, outputs=(9,), nodes=(9,), key="bb"),))
    assert not compare(before, other)[0].is_empty


def test_a_kernel_that_stores_another_node_is_the_same_kernel() -> None:
    """The reciprocal moves from what reads the buffer to what writes it: no kernel is gone, none is fused."""
    middle = tuple(binary("SQRT", i, id=i + 1) for i in range(5))
    nodes = (X, *middle)
    sides = []
    for cut in (3, 4):
        kernels = (
            make_kernel("a", "void a() {}\n", outputs=(cut,), nodes=tuple(range(1, cut + 1))),
            make_kernel("b", f"void b() {{ {cut}; }}\n", outputs=(5,), nodes=tuple(range(cut + 1, 6))),
        )
        sides.append(make(nodes, kernels=kernels))
    # the other release has another name for the memory, else both were read as they are
    after = tuple(replace(node, op="PARAM", arg="slot 0") if node.op == "BUFFER" else node for node in nodes)
    renamed = replace(sides[1], schedules=(replace(sides[1].schedules[0], nodes=after),))
    _, schedule = compare(sides[0], renamed)
    found = [(item.status, item.matched_by) for item in schedule.kernels]
    assert found == [("unchanged", "nodes"), ("changed", "outputs")]


INDEXED = "(float* a, const int i, const int j) {\n  a[i];\n}"
SPELLINGS = [
    (
        "(float* a, int core_id) {\n  int gidx0 = core_id; /* 2 */\n  a[gidx0];\n}",
        "(float* a, const int data1_) {\n  a[data1_];\n}",
    ),
    ("(float* a, int core_id) {\n  a[0];\n}", "(float* a) {\n  a[0];\n}"),
    ("(float* a) {\n  a[0] = 1e-05f;\n}", "(float* a) {\n  a[0] = 9.999999747378752e-06f;\n}"),
    (INDEXED, "(float* a, const int n) {\n  a[n];\n}"),
]


@pytest.mark.parametrize(("one", "other"), SPELLINGS)
def test_spellings_of_one_program(one: str, other: str) -> None:
    assert canonize_source(f"void k{one}", "k") == canonize_source(f"void k{other}", "k")
    # an integer that is used stays
    used = INDEXED.replace("a[i]", "a[i+j]")
    assert canonize_source(f"void k{one}", "k") != canonize_source(f"void k{used}", "k")


@pytest.mark.parametrize(("one", "same"), [("1.0f", "1.0f"), ("0.1f", "0.10000000149011612f"), ("1e60f", "1e60f")])
def test_numbers_of_32_bits(one: str, same: str) -> None:
    assert unify_float(one) == same
    assert unify_float("0.1f") != unify_float("0.1000001f")


def test_one_tinygrad_is_compared_as_it_was() -> None:
    """One more EXPAND is a change if nothing else was renamed and both sides ran on the same tinygrad."""
    nodes = (X, binary("SQRT", 0))
    more = (X, make_node(1, "EXPAND", (8,), src=(0,), arg="(8)"), binary("SQRT", 1))
    assert not diff_captures(make(nodes), make(more)).is_empty
    assert compare(make(nodes), make(more))[0].is_empty
    dirty = replace(OLD, commit="abc-dirty")
    one, other = (replace(make(side), versions=dirty) for side in (nodes, more))
    assert diff_captures(one, other).is_empty
