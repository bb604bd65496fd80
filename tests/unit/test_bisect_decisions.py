"""The search for single decisions: which there are, that what matters is found, and how often it asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from captures import make_node
from rendered import flatten, print_to_text

from vmapdbg.bisect.outcome import NamedOutcome, find_wrong_schedule
from vmapdbg.bisect.search import Choices, DecisionSearcher, list_forceable, list_releasable
from vmapdbg.install.job import Choice, Job, dump_record, load_job
from vmapdbg.model.capture import SCHEMA, Bufferize, Capture, Node, Output, Realized, Reason, Schedule, Versions
from vmapdbg.model.vocabulary import Rule
from vmapdbg.page.documents import DecisionsDocument, DecisionTrial, describe_choices
from vmapdbg.page.sentences import fill_sentences
from vmapdbg.page.text.bisect import print_decisions

Found = tuple[list[Choices], bool]


def make_schedule(
    *nodes: Node, index: int = 0, bufferizes: Sequence[Bufferize] = (), outputs: Sequence[Output] = ()
) -> Schedule:
    return Schedule(index, None, 0, nodes, (), (), tuple(bufferizes), (), tuple(outputs))


def make_capture(*schedules: Schedule) -> Capture:
    return Capture(SCHEMA, Versions("", "0.14.0", ""), "a.py", "c", {}, None, schedules, (), mode="observe")


def make_buffer(node: int, addrspace: str = "GLOBAL", outcome: str = "kept") -> Bufferize:
    return Bufferize(node, (), (), 2, 8, addrspace, outcome, "")  # type: ignore[arg-type]


def realized_by(rule: Rule) -> Realized:
    return Realized((0,), "always", "", (Reason(rule, (1,)),))


def make_chain(length: int) -> Capture:
    """A buffer, and that many MULs of each other."""
    nodes = [make_node(0, "PARAM", ranges=("r0",))]
    nodes += [make_node(i, "MUL", src=(i - 1,), ranges=("r0",)) for i in range(1, length + 1)]
    return make_capture(make_schedule(*nodes))


class Asked:
    """Answers with an outcome for the set of forced and freed nodes, and counts the questions."""

    def __init__(self, outcome: Callable[[set[int], set[int]], str]) -> None:
        self.outcome = outcome
        self.sets: list[Choices] = []

    def __call__(self, sets: Sequence[Choices]) -> list[str]:
        self.sets += sets
        return [
            self.outcome({c.node for c in one if c.realized}, {c.node for c in one if not c.realized}) for one in sets
        ]


def mend(capture: Capture, asked: Asked, budget: int = 1000) -> Found:
    forceable = frozenset(choice for schedule in capture.schedules for choice in list_forceable(schedule))
    return DecisionSearcher(capture, forceable, asked, budget).find_mending(lambda outcome: outcome == "right")


def nodes_of(found: Found) -> tuple[list[list[int]], bool]:
    """The nodes of each set of choices, and whether the search is complete."""
    return sorted(sorted(choice.node for choice in one) for one in found[0]), found[1]


# *** which decisions there are


def test_what_computes_and_has_no_buffer_can_be_forced() -> None:
    nodes = (
        make_node(0, "PARAM", ranges=("r0",)),
        make_node(1, "RESHAPE", src=(0,), ranges=("r0",)),
        make_node(2, "MUL", src=(1, 1), ranges=("r0",)),
        make_node(3, "REDUCE", src=(2,), ranges=("r0",)),
        make_node(4, "EXP2", src=(3,), ranges=("r0",)),
        make_node(5, "CONST", ranges=("r0",)),
        make_node(6, "ADD", src=(5, 4), ranges=None),
        make_node(7, "ADD", src=(5, 4), shape=None, ranges=("r0",)),
        make_node(8, "ADD", src=(5, 4), dtype="weakfloat", ranges=("r0",)),
    )
    buffers = [make_buffer(3), make_buffer(4, "LOCAL"), make_buffer(2, outcome="removed")]
    found = list(list_forceable(make_schedule(*nodes, bufferizes=buffers)))
    assert found == [Choice(0, 2, "MUL"), Choice(0, 4, "EXP2")]
    assert list(list_forceable(replace(make_schedule(*nodes), cached=True))) == []


def test_what_a_store_writes_to_is_not_forced() -> None:
    nodes = (
        make_node(0, "PARAM", ranges=("r0",)),
        make_node(1, "ADD", src=(0,), ranges=("r0",)),
        make_node(2, "SHRINK", src=(1,), ranges=("r0",)),
        make_node(3, "ADD", src=(0,), ranges=("r0",)),
        make_node(4, "STORE", src=(2, 3), ranges=("r0",)),
    )
    assert list(list_forceable(make_schedule(*nodes))) == [Choice(0, 3, "ADD")]


def test_what_a_rule_asks_for_can_be_let_go_and_an_output_cannot() -> None:
    nodes = (
        make_node(0, "CONTIGUOUS", realized=realized_by("always")),
        make_node(1, "STORE", realized=realized_by("always")),
        make_node(2, "MUL", realized=realized_by("output")),
        make_node(3, "MUL", realized=realized_by("ending-ranges")),
        make_node(4, "MUL", realized=realized_by("source-of")),
        make_node(5, "MUL", realized=realized_by("decided-at")),
    )
    found = list(list_releasable(make_schedule(*nodes)))
    assert found == [Choice(0, 0, "CONTIGUOUS", realized=False), Choice(0, 4, "MUL", realized=False)]


# *** the search


def test_one_node_of_many_is_found_in_few_runs() -> None:
    for wanted in range(1, 65):
        asked = Asked(lambda forced, _, wanted=wanted: "right" if wanted in forced else "wrong")
        search = mend(make_chain(64), asked)
        assert nodes_of(search) == ([[wanted]], True)
        assert len(asked.sets) == len(set(asked.sets)) <= 13


def test_two_that_are_needed_together_and_one_if_all_together_do_harm() -> None:
    asked = Asked(lambda forced, _: "right" if {3, 11} <= forced else "wrong")
    search = mend(make_chain(20), asked)
    assert nodes_of(search) == ([[3, 11]], True)
    asked = Asked(lambda forced, _: "right" if forced == {3} else "wrong")
    search = mend(make_chain(6), asked)
    assert nodes_of(search) == ([[3]], True)


def test_reduces_alone_are_searched_where_they_are_enough() -> None:
    chain = make_chain(60).schedules[0]
    nodes = [replace(node, op="REDUCE") if node.id % 15 == 0 and node.id else node for node in chain.nodes]
    asked = Asked(lambda forced, _: "right" if {15, 30, 60} <= forced else "wrong")
    search = mend(make_capture(make_schedule(*nodes)), asked, budget=20)
    assert nodes_of(search) == ([[15, 30, 60]], True)


def test_too_few_runs_are_reported() -> None:
    needed = {3, 7, 11, 14, 18}
    asked = Asked(lambda forced, _: "right" if needed <= forced else "wrong")
    search = mend(make_chain(20), asked, budget=12)
    found, is_complete = nodes_of(search)
    assert not is_complete
    assert needed <= set(found[0])
    assert len(asked.sets) <= 12


def test_a_realize_point_is_let_go_where_forcing_does_not_help() -> None:
    chain = make_chain(4).schedules[0]
    contiguous = make_node(5, "CONTIGUOUS", src=(4,), ranges=("r0",), realized=realized_by("always"))
    asked = Asked(lambda _, released: "right" if 5 in released else "wrong")
    search = mend(make_capture(make_schedule(*chain.nodes, contiguous)), asked)
    assert search[0] == [frozenset({Choice(0, 5, "CONTIGUOUS", realized=False)})]


def test_single_decisions_that_change_it() -> None:
    capture = make_chain(6)
    asked = Asked(lambda forced, _: "as it is" if not forced & {2, 5} else f"other {min(forced)}")
    forceable = frozenset(list_forceable(capture.schedules[0]))
    search = DecisionSearcher(capture, forceable, asked, 40).find_single(lambda outcome: outcome != "as it is")
    assert nodes_of(search) == ([[2], [5]], True)
    search = DecisionSearcher(capture, forceable, asked, 4).find_single(lambda outcome: outcome != "as it is")
    assert nodes_of(search) == ([[2]], False)


def test_reduces_are_tried_first() -> None:
    chain = make_chain(6).schedules[0]
    capture = make_capture(make_schedule(*chain.nodes, make_node(7, "REDUCE", src=(6,), ranges=("r0",))))
    asked = Asked(lambda _forced, _released: "same")
    forceable = frozenset(list_forceable(capture.schedules[0]))
    DecisionSearcher(capture, forceable, asked, 1).find_single(lambda _: False)
    assert asked.sets == [frozenset({Choice(0, 7, "REDUCE")})]


def test_the_first_wrong_schedule() -> None:
    one, two = (Output((1,), "float", str(value), (value,)) for value in (1.0, 2.0))
    right = make_capture(make_schedule(outputs=[one]), make_schedule(index=1, outputs=[one]))
    wrong = make_capture(make_schedule(outputs=[one]), make_schedule(index=1, outputs=[two]))
    assert find_wrong_schedule(right, wrong) == 1
    assert find_wrong_schedule(right, right) is None
    assert find_wrong_schedule(right, make_capture(make_schedule(outputs=[two]))) is None


# *** what goes to the child, and what is printed


def test_choices_go_to_the_child_and_back() -> None:
    job = Job("a.py", patches=None, choices=(Choice(0, 3, "MUL"), Choice(1, 5, "CONTIGUOUS", realized=False)))
    assert load_job(dump_record(job)) == job
    assert load_job(dump_record(Job("a.py"))) == Job("a.py")


def test_a_forced_node_says_so() -> None:
    node = make_node(1, "MUL", realized=Realized((0,), "forced", "", (Reason("forced"),)))
    (schedule,) = fill_sentences(make_capture(make_schedule(node))).schedules
    assert schedule.nodes[0].realized is not None
    assert schedule.nodes[0].realized.detail == "forced to be a buffer, by bisect --decisions"


OUTCOMES = (NamedOutcome("A", "1 value"), NamedOutcome("B", "1 output differs"))
DOCUMENT = DecisionsDocument(
    schema=SCHEMA,
    kind="bisect-decisions",
    snippet="a.py",
    by="values",
    reference="--baseline=0.13.0",
    right="A",
    given="B",
    candidates=4,
    outcomes=OUTCOMES,
    found=(),
    complete=True,
    tried=(DecisionTrial((), "B", 1),),
    changes=None,
)


def show(**changes: Any) -> str:
    document = replace(DOCUMENT, **changes)
    return flatten(print_to_text(lambda console: print_decisions(document, console), 200))


def make_made(choice: Choice) -> list[Schedule]:
    """What is made with a node forced: it has a buffer."""
    return [make_schedule(bufferizes=[make_buffer(choice.node)])]


def test_a_buffer_that_is_removed_again_is_reported() -> None:
    schedules = make_chain(2).schedules
    decided = describe_choices({Choice(0, 1, "MUL")}, schedules, [make_schedule()])
    said = show(found=(DecisionTrial(decided, "A", 2),))
    assert "MUL 1 (2,), forced to be a realize point (its buffer is removed again) -> A" in said
    # the run died
    assert not describe_choices({Choice(0, 1, "MUL")}, schedules, [])[0].kept


def test_found_decisions_are_printed() -> None:
    schedules = make_chain(4).schedules
    one, two = (
        DecisionTrial(describe_choices({choice}, schedules, make_made(choice)), "A", 2)
        for choice in islice(list_forceable(schedules[0]), 2)
    )
    both = DecisionTrial((*one.decisions, *two.decisions), "A", 3)
    said = "schedule 0: MUL 1 (2,), forced to be a buffer -> A, 2 kernels"
    assert f"this one decision makes it right (4 nodes to force) {said}" in show(found=(one,))
    assert "each of these 2 decisions makes it right" in show(found=(one, two))
    together = "these 2 decisions together make it right"
    assert f"{together}, and no part of them does (" in show(found=(both,))
    assert f"{together}: fewer may be enough (4 nodes to force, not all tried: --runs)" in show(
        found=(both,), complete=False
    )
    assert "this one decision changes it" in show(found=(one,), right=None, reference=None)


def test_an_unsuccessful_search_is_printed() -> None:
    assert "no decision that was tried makes it right (4 nodes to force)" in show()
    nothing = "the outcome is right already: there is nothing to fix"
    assert nothing in show(given="A")
    assert "(the right outcome: --baseline=0.13.0; as it is; 0 runs)" in show(given="A")
