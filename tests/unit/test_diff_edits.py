"""Two versions of a program: nodes are paired by their place if an edit changed what they compute, and lines by their
text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from captures import make_capture, make_kernel, make_node, make_schedule
from diff_captures import draw_capture, mutate_capture
from hypothesis import given
from hypothesis import strategies as st

from vmapdbg.diff.captures import diff_captures
from vmapdbg.diff.nodes import match_nodes, match_rest, match_schedules
from vmapdbg.diff.pairing import match_lines
from vmapdbg.diff.result import ScheduleDiff
from vmapdbg.model.capture import Capture, Finding, Node


def softmax_like(first: Sequence[Node], line: str = "a.py:7") -> tuple[Node, ...]:
    """A chain behind some nodes: what the last of them computes is read twice."""
    last = len(first) - 1
    return (
        *first,
        make_node(last + 1, "EXP2", src=(last,), line=line),
        make_node(last + 2, "REDUCE_AXIS", src=(last + 1,), line=line, arg="ADD (0,)"),
        make_node(last + 3, "RECIPROCAL", src=(last + 2,), line=line),
        make_node(last + 4, "MUL", src=(last + 1, last + 3), line=line),
    )


INPUTS = (make_node(0, "BUFFER", line="a.py:1"), make_node(1, "NEG", src=(0,), line="a.py:2"))
PLAIN = softmax_like(INPUTS)
STORED = softmax_like((*INPUTS, make_node(2, "CONTIGUOUS", src=(1,), line="a.py:2")))


def compare(before: Sequence[Node], after: Sequence[Node], lines: dict[str, str] | None = None) -> ScheduleDiff:
    one, other = (make_capture(make_schedule(nodes=tuple(nodes))) for nodes in (before, after))
    (schedule,) = diff_captures(one, other, same_lines=lines).schedules
    return schedule


def list_lone(diff: ScheduleDiff) -> tuple[list[str], list[str]]:
    return [node.op for node in diff.nodes_only_before], [node.op for node in diff.nodes_only_after]


def test_a_contiguous_that_is_added_is_all_that_is_added() -> None:
    diff = compare(PLAIN, STORED)
    assert list_lone(diff) == ([], ["CONTIGUOUS"])
    # what reads it reads something else, the rest is the same
    assert [(item.after.op, item.changed) for item in diff.nodes] == [("EXP2", ("src",))]
    assert [(item.before, item.after) for item in diff.same_nodes] == [(0, 0), (1, 1), (3, 4), (4, 5), (5, 6)]
    # taken out, it is all that is gone
    assert list_lone(compare(STORED, PLAIN)) == (["CONTIGUOUS"], [])


def test_an_edit_near_the_inputs_leaves_later_nodes_and_the_schedule_paired() -> None:
    other = softmax_like((INPUTS[0], make_node(1, "SQRT", src=(0,), line="a.py:2")))
    diff = compare(PLAIN, other)
    assert list_lone(diff) == (["NEG"], ["SQRT"])
    assert [(item.after.op, item.changed) for item in diff.nodes] == [("EXP2", ("src",))]
    before = make_schedule(nodes=PLAIN)
    after = make_schedule(nodes=(replace(PLAIN[0], dtype="half"), *PLAIN[1:]))
    assert match_schedules([before], [after]) == [(0, 0, "line")]


def test_nodes_between_two_edits_stay_paired_in_a_long_chain_too() -> None:
    """Neither its sources nor its readers are the same: only its line identifies it."""
    chain = [make_node(0, "BUFFER"), make_node(1, "NEG", src=(0,))]
    chain += [make_node(n, "ADD", src=(n - 1, n - 1), line=f"a.py:{n}") for n in range(2, 6)]
    chain.append(make_node(6, "SQRT", src=(5,)))
    other = [replace(node, op={"NEG": "EXP2", "SQRT": "SIN"}.get(node.op, node.op)) for node in chain]
    diff = compare(chain, other)
    assert list_lone(diff) == (["NEG", "SQRT"], ["EXP2", "SIN"])
    assert [(item.after.id, item.changed) for item in diff.nodes] == [(2, ("src",))]
    chain = [make_node(0, "BUFFER"), *(make_node(n, "ADD", src=(n - 1, 0)) for n in range(1, 3000))]
    diff = compare(chain, [replace(chain[0], arg="other"), *chain[1:]])
    assert list_lone(diff) == (["BUFFER"], ["BUFFER"])


def test_swapped_sources_are_a_change() -> None:
    """Both nodes are on both sides: without what they read nothing would be said."""
    inputs = (make_node(0, "BUFFER", arg="a"), make_node(1, "BUFFER", arg="b"))
    before = (*inputs, make_node(2, "SUB", src=(0, 1)))
    diff = compare(before, (*inputs, make_node(2, "SUB", src=(1, 0))))
    assert list_lone(diff) == ([], [])
    assert [(item.before.src, item.after.src, item.changed) for item in diff.nodes] == [((0, 1), (1, 0), ("src",))]
    assert not diff.is_empty


def test_of_several_the_node_of_the_same_line_is_taken() -> None:
    sides = []
    for first, *lines in (("BUFFER", "old.py:3", "old.py:9"), ("PARAM", "new.py:10", "new.py:4")):
        readers = (make_node(number, "EXP2", src=(0,), line=line) for number, line in enumerate(lines, 1))
        sides.append(make_schedule(nodes=(make_node(0, first), *readers)))
    before, after = sides
    found = match_rest(before, after, match_nodes(before, after), {"old.py:3": "new.py:4", "old.py:9": "new.py:10"})
    assert found == {1: 2, 2: 1}


@given(draw_capture(), st.integers(0, 10**6))
def test_edits_are_paired_one_with_one(capture: Capture, seed: int) -> None:
    other = mutate_capture(capture, seed)
    for before, after in zip(capture.schedules, other.schedules, strict=False):
        known = match_nodes(before, after)
        found = match_rest(before, after, known, {})
        assert not found.keys() & known.keys()
        assert len({*found.values(), *known.values()}) == len(found) + len(known)
        back = match_rest(after, before, {twin: node for node, twin in known.items()}, {})
        assert len(back) == len(found)


# *** lines

OLD = "import x\n\ny = f(x)\nz = g(y).sum()\nprint(z)\n"
NEW = "import x\n# what is new\n\ny = f(x)\nz = g(y).contiguous().sum()\nprint(z)\n"


def test_lines_that_moved_are_the_same() -> None:
    assert match_lines(OLD, NEW, ("old.py", "new.py")) == {
        "old.py:1": "new.py:1",
        "old.py:3": "new.py:4",
        # edited, and alike
        "old.py:4": "new.py:5",
        "old.py:5": "new.py:6",
    }
    # another line is not an edit
    assert match_lines("a\nfoo(bar)\nb", "a\n1 + 2\nb", ("o", "n")) == {"o:1": "n:1", "o:3": "n:3"}
    # edited lines do not cross
    found = match_lines("first = call(1)\nsecond = other(2)", "second = other(20)\nfirst = call(10)", ("o", "n"))
    assert len(found) == 1


def test_a_finding_of_a_line_that_moved_is_neither_gone_nor_new() -> None:
    def find(line: str, message: str) -> Capture:
        capture = make_capture(make_schedule(kernels=(make_kernel("r_2"),)))
        return replace(capture, findings=(Finding("VD101", "r_2", None, line, message),))

    before, after = find("old.py:4", "lost"), find("new.py:5", "lost")
    lines = match_lines(OLD, NEW, ("old.py", "new.py"))
    diff = diff_captures(before, after, same_lines=lines)
    assert (diff.findings_gone, diff.findings_new) == ((), ())
    assert len(diff_captures(before, after).findings_new) == 1
