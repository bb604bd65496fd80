"""Who made a wrong buffer whose kernel is right as the scheduler made it: the linear program says which."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np
import pytest
from linear_programs import ProgramMaker

from vmapdbg.check.compare import compare
from vmapdbg.check.result import Comparison, KernelFault
from vmapdbg.child.compare import linear_fault
from vmapdbg.child.compare.kernel_rerun import WrongBuffer
from vmapdbg.child.evidence.graphs import KernelRun, WrittenBuffer
from vmapdbg.page.check_sentences import describe_maker
from vmapdbg.values.numbers import Array, encode
from vmapdbg.values.tolerance import make_tolerance

READ = np.arange(12.0)
DOUBLED = (2 * READ).tolist()


def make_program(factor: float = 2.0, steps: int = 12) -> ProgramMaker:
    """Each element times a factor."""
    made = ProgramMaker()
    out, read = made.argument(np.zeros(12)), made.argument(READ)
    step = made.loop(steps)
    made.store(out, step, made.add("mul", made.load(read, step), made.number(factor, "float")))
    made.end(step)
    return made


def tell(made: ProgramMaker, got: Sequence[float], right: Sequence[float] = DOUBLED) -> KernelFault:
    run = KernelRun(None, (None, "read"), None, "linear")
    contents = {"linear": pickle.dumps(made.program)}
    if 1 in made.contents:
        contents["read"] = made.contents[1].data
    return judge(run, contents, got, right)


def judge(run: KernelRun, contents: dict[str, bytes], got: Sequence[float], right: Sequence[float]) -> KernelFault:
    expected = encode(np.array(right), "float")
    tolerance = make_tolerance("float", 4, max(right))

    def compare_with_right(found: Array) -> Comparison:
        return compare(found, expected, 4)

    buffer = WrittenBuffer(1, 0, (0,), ((0, len(right)),), "float", len(right), "got", run=run)
    wrong = WrongBuffer(buffer, encode(np.array(got), "float"), expected, (), tolerance, compare_with_right)
    return linear_fault.find_linear_fault(contents.__getitem__, wrong)


TRIPLED, OTHERS = (3 * READ).tolist(), (5 * READ).tolist()


@pytest.mark.parametrize("most", [linear_fault.MOST_NUMBERS, 1])
def test_which_of_the_two(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be it that all of the program is run, or only what writes some of the wrong elements."""
    monkeypatch.setattr(linear_fault, "MOST_NUMBERS", most)
    monkeypatch.setattr(linear_fault, "_MOST_SHOWN", 2)
    assert tell(make_program(), TRIPLED) == KernelFault("compiler")
    assert tell(make_program(3.0), TRIPLED) == KernelFault("codegen", is_same=True)
    assert tell(make_program(3.0), OTHERS) == KernelFault("codegen", is_same=False)


def test_a_fault_in_one_element() -> None:
    got = [*DOUBLED[:7], -1.0, *DOUBLED[8:]]
    assert tell(make_program(), got).made_by == "compiler"
    # the last step is missing: what nobody has written is 0
    assert tell(make_program(steps=11), [*DOUBLED[:11], 0.0]) == KernelFault("codegen", is_same=True)


def test_a_program_that_writes_outside_of_its_buffer() -> None:
    fault = tell(make_program(steps=13), TRIPLED)
    assert (fault.made_by, fault.reason) == ("codegen", "it writes outside of its buffer")


def test_where_it_cannot_be_told_the_reason_is() -> None:
    made = ProgramMaker()
    out, by = made.argument(np.zeros(2), "int"), made.number(0)
    made.store(out, by, made.add("cdiv", made.number(7), by, dtype="int"))
    run = KernelRun(None, (None,), None, "linear")
    buffer_of_two = encode(np.array([1, 0]), "int")
    fault = judge_integers(run, {"linear": pickle.dumps(made.program)}, buffer_of_two)
    assert fault == KernelFault("lowering", "C leaves undefined what its linear program computes")
    refused = KernelRun(None, (None,), None, None, "its linear program was not kept")
    assert judge(refused, {}, TRIPLED, DOUBLED) == KernelFault("lowering", "its linear program was not kept")
    unread = KernelRun(None, (None, None), None, "linear")
    fault = judge(unread, {"linear": pickle.dumps(make_program().program)}, TRIPLED, DOUBLED)
    assert fault == KernelFault("lowering", "what it reads was not kept")


def judge_integers(run: KernelRun, contents: dict[str, bytes], got: Array) -> KernelFault:
    right = encode(np.array([5, 0]), "int")
    buffer = WrittenBuffer(1, 0, (0,), ((0, 2),), "int", 2, "got", run=run)

    def compare_with_right(found: Array) -> Comparison:
        return compare(found, right, 0)

    wrong = WrongBuffer(buffer, got, right, (), make_tolerance("int", 0, 5), compare_with_right)
    return linear_fault.find_linear_fault(contents.__getitem__, wrong)


SENTENCES = [
    (
        KernelFault("codegen", is_same=True),
        "the kernel as scheduled computes it right, its linear program the same wrong values: "
        "code generation made the fault",
    ),
    (
        KernelFault("codegen", is_same=False),
        "the kernel as scheduled computes it right, its linear program wrong values, but others: "
        "code generation made a fault",
    ),
    (
        KernelFault("codegen", "it writes outside of its buffer"),
        "the kernel as scheduled computes it right, its linear program does not (it writes outside of its buffer): "
        "code generation made the fault",
    ),
    (
        KernelFault("compiler"),
        "the kernel as scheduled and its linear program compute it right: "
        "the renderer, the compiler or the machine made the fault",
    ),
    (
        KernelFault("compiler", "it writes one buffer in two ways"),
        "the kernel's linear program computes it right: the renderer, the compiler or the machine made the fault",
    ),
    (
        KernelFault("lowering", "it is long"),
        "the kernel as scheduled computes it right: code generation or the compiler made the fault (it is long)",
    ),
    (
        KernelFault("lowering"),
        "the kernel as scheduled computes it right: code generation or the compiler made the fault",
    ),
]


@pytest.mark.parametrize(("fault", "sentence"), SENTENCES)
def test_sentences(fault: KernelFault, sentence: str) -> None:
    assert describe_maker(fault) == sentence
