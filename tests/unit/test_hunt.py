"""Random programs of `python -m tests.fuzz hunt`, without tinygrad: drawn, written, made small, grouped by cause."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.fuzz.draw import SeededDraw
from tests.fuzz.hunt.__main__ import find_odd
from tests.fuzz.hunt.draw import draw_plan
from tests.fuzz.hunt.finds import Find, add_find, merge, name_cause, read_finds
from tests.fuzz.hunt.plan import Kind, Plan, Statement, write_program
from vmapdbg.bisect.smaller import shrink

KIND = Kind((4,), "float")
PLAN = Plan(
    (Statement("Tensor.arange(4)", (), "x0", KIND), Statement("Tensor.ones(4)", (), "x1", KIND)),
    (
        Statement("{0} * {1}", ("x0", "x1"), "v0", KIND),
        Statement("{0}.assign({1})", ("x1", "v0")),
        Statement("{0}.cumsum(0)", ("v0",), "v1", KIND),
        Statement("{0} + 1", ("v1",), "v2", KIND),
    ),
    ("v2", "x1"),
    "together",
)


def test_programs_are_python_and_the_same_each_time() -> None:
    for number in range(300):
        source = write_program(draw_plan(SeededDraw((7, number))))
        ast.parse(source)
        assert source == write_program(draw_plan(SeededDraw((7, number))))


def test_a_program_is_written_in_its_order() -> None:
    assert write_program(PLAN).splitlines()[3:] == [
        "x0 = Tensor.arange(4)",
        "x1 = Tensor.ones(4)",
        "v0 = x0 * x1",
        "x1.assign(v0)",
        "v1 = v0.cumsum(0)",
        "v2 = v1 + 1",
        "Tensor.realize(v2, x1)",
        "print(v2.numpy())",
        "print(x1.numpy())",
    ]


def shrink_first(fault: str) -> str:
    """Returns the smallest program with `fault` in its source, made from the first random program that has it."""
    for number in range(1000):
        source = write_program(draw_plan(SeededDraw((7, number))))
        if fault in source:
            *_, small = shrink(source, lambda sources: [fault in one for one in sources], 1, 60)
            return small
    raise AssertionError(f"no program has {fault}")


def test_what_fails_is_made_small() -> None:
    small = shrink_first(".cumsum(")
    assert len(small.splitlines()) <= 3
    assert ".cumsum(" in small
    assert len(shrink_first(".assign(").splitlines()) <= 3


def test_finds_of_several_files_merge_by_cause(tmp_path: Path) -> None:
    for number, text in enumerate(("x0 = 1\nv1 = x0.relu().sum()\n", "v1 = v2.sum()\nv3 = v1.relu()\nv4 = v3.sum()\n")):
        cause = name_cause("wrong", "wrong", "program.py:3: output 0: 1 of 1", text)
        add_find(tmp_path / f"finds-{number}.jsonl", Find("wrong", "0.14.0", cause, "", text, {}, "", 0.0))
    (cause,) = (causes := merge(read_finds(tmp_path)))
    assert cause == "wrong output relu sum"
    assert len(causes[cause][0].source) < len(causes[cause][1].source)
    # a crash is known by where it is
    assert name_cause("crash", "crash KeyError a.py:f", "", "v1 = x.sum()") == "crash KeyError a.py:f"


def test_the_odd_one_prints_other_numbers() -> None:
    printed = {"a": "[1.0 2.0]", "b": "[1.0001 2.0]", "c": "[1. 3.]", "d": "[1.0 2.0]"}
    assert find_odd(printed) == ["c"]
    assert find_odd({"a": "1", "b": "2"}) == []
