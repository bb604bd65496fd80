"""What is observed of a release becomes a Capture as the overlay's: whole, valid, with a reason for each decision."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator
from release_trees import HERE, NULL, PROGRAMS, load_captures, load_observed
from rich.console import Console
from tool import show_json, without_places

from docs.make_schemas import schema_file
from vmapdbg.model.capture import Bufferize, Capture, Node
from vmapdbg.model.store import dump_compact, parse_capture
from vmapdbg.model.vocabulary import StageName
from vmapdbg.page.graph.write import write_graph
from vmapdbg.page.text.run import print_capture
from vmapdbg.page.text.why import print_explanations
from vmapdbg.page.why import explain

WIDTH = 80


@pytest.fixture(params=[p.stem for p in PROGRAMS])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def capture(release: str, name: str) -> Capture:
    return load_observed(release, name)


def list_nodes(capture: Capture) -> list[Node]:
    return [node for schedule in capture.schedules for node in schedule.nodes]


def list_bufferizes(capture: Capture) -> list[Bufferize]:
    return [made for schedule in capture.schedules for made in schedule.bufferizes]


def render(show: Any) -> str:
    out = io.StringIO()
    show(Console(file=out, width=WIDTH))
    return out.getvalue()


def test_document_is_valid_and_comes_back(capture: Capture, release: str) -> None:
    schema = json.loads(schema_file("capture").read_text(encoding="utf-8"))
    errors = Draft202012Validator(schema).iter_errors(json.loads(dump_compact(capture)))
    assert [error.message for error in errors] == []
    assert parse_capture(dump_compact(capture), "again") == capture
    # it says how it was made
    assert (capture.mode, capture.patches, capture.missing) == ("observe", {}, ())
    assert capture.versions.tinygrad == release


def test_every_realized_node_says_why_and_where(capture: Capture) -> None:
    """Each reason has its operands, too: who asks for what, and where which range ends."""
    realized = [node.realized for node in list_nodes(capture) if node.realized is not None]
    assert realized
    for why in realized:
        assert why.reasons
        assert why.reason != "decided-at"
        for reason in why.reasons:
            assert reason.at is not None
            assert reason.at.text
            assert f"(indexing.py:{reason.at.line})" in why.detail
            if reason.rule == "consumers-disagree":
                assert reason.axis is not None
                assert len(reason.nodes) == len(reason.ranges) > 1
            if reason.rule == "ending-ranges":
                assert len(reason.nodes) == len(reason.ranges) > 0
            if reason.rule == "source-of":
                assert reason.nodes


def test_every_buffer_says_why_and_where(capture: Capture) -> None:
    for made in list_bufferizes(capture):
        assert made.decided is not None
        assert made.decided.rule not in {"decided-at", "no-rule", "folded"}
        if made.decided.rule != "output":
            assert made.decided.at is not None
            assert made.reason.endswith(f"(rangeify.py:{made.decided.at.line})")
        if made.decided.rule in {"many-buffers", "few-buffers"}:
            numbers = made.decided.numbers
            assert numbers["limit"] == 3
            assert (int(numbers["buffers"]) > 3) == (made.outcome == "kept")
        if made.decided.rule == "reduce-reads-buffer":
            assert int(made.decided.numbers["reduces"]) > 0


def test_every_schedule_is_whole(capture: Capture, release: str) -> None:
    """Its kernels have all their parts and write each buffer that is kept, and its ranges belong to nodes."""
    kinds = {"REDUCE", "WEAK" if release == "0.14.0" else "LOOP"}
    for schedule in capture.schedules:
        assert schedule.kernels
        for kernel in schedule.kernels:
            assert kernel.name in kernel.source
            assert kernel.outputs
            assert set(kernel.outputs) <= set(kernel.nodes)
            assert kernel.lines
            assert kernel.key
            assert kernel.launches == 1
            assert kernel.buffers[0].access == "write"
        written = {node for kernel in schedule.kernels for node in kernel.outputs}
        copied = {node.id for node in schedule.nodes if node.op == "COPY"}
        kept = {made.node for made in schedule.bufferizes if made.outcome == "kept"}
        assert kept <= written | copied
        assert {r.axis_type for r in schedule.ranges} <= kinds
        assert len({r.name for r in schedule.ranges}) == len(schedule.ranges)


def test_every_node_is_of_the_users_program(capture: Capture) -> None:
    """Not what only says how large something is, or where."""
    for node in list_nodes(capture):
        assert node.op not in {"DEVICE", "UNIQUE", "LUNIQUE", "SINK", "RANGE"}
        assert node.line is not None
        # a number of a weak type is a node only if something computes with it
        assert not node.dtype.startswith("weakint") or node.out_ranges is not None


def test_it_is_printed(capture: Capture, release: str) -> None:
    out = render(lambda console: print_capture(capture, console, schedule="all"))
    assert max(map(len, out.splitlines())) <= WIDTH
    assert f"tinygrad    {release}, observed (nothing replaced)" in out
    assert "patches" not in out
    headings = {"BUFFERIZE", "STAGE"} & {line.split("  ")[0] for line in out.splitlines()}
    assert headings == {"BUFFERIZE" if release == "0.12.0" else "STAGE"}


def test_every_part_of_the_capture_can_be_shown(capture: Capture) -> None:
    last = capture.schedules[-1]
    subjects = [None, *(kernel.name for kernel in last.kernels), *(str(node.id) for node in last.nodes)]
    for subject in subjects:
        explained = explain(capture, subject, None)
        out = render(lambda console, explained=explained: print_explanations(explained, console))
        assert out.strip()


@pytest.mark.parametrize("stage", get_args(StageName))
def test_it_is_drawn(capture: Capture, stage: StageName, tmp_path: Path) -> None:
    write_graph(capture, tmp_path / "graph.dot", stage=stage)
    assert "digraph" in (tmp_path / "graph.dot").read_text(encoding="utf-8")


# nodes for which an observer sees a second cause
TWO_CAUSES = {"block_backward": {193, 247}}
# of the user's program: the programs before it in the process have some of the same nodes
OF_THE_PROGRAM = dict.fromkeys(("line", "lines", "method", "function", "phase", "title"))


def describe_schedule(schedule: dict[str, Any], name: str) -> Any:
    """Each process numbers its kernels of one name: r_6_10_4n2."""
    for node in schedule["nodes"]:
        if node["id"] in TWO_CAUSES.get(name, ()):
            node["realized"] = None
    nodes = [node | OF_THE_PROGRAM for node in schedule["nodes"]]
    kernels = [kernel | OF_THE_PROGRAM for kernel in schedule["kernels"]]
    bufferizes = sorted(schedule["bufferizes"], key=lambda made: made["node"])
    parts = schedule | OF_THE_PROGRAM | {"nodes": nodes, "kernels": kernels, "bufferizes": bufferizes}
    return json.loads(re.sub(r"\b([rE]_[\d_]+)n\d+\b", r"\1", json.dumps(without_places(parts))))


def test_it_is_what_the_overlay_shows(name: str, tmp_path: Path) -> None:
    """On 0.12.0 with the patches off. That of user lines is in tests/cli/test_show.py."""
    program = HERE / "programs" / f"{name}.py"
    shown, _ = show_json(program, "--patches", "none", "--schedule", "all", cwd=tmp_path, **NULL)
    (ours,) = json.loads(load_captures("0.12.0", "c")[name])["schedules"]
    (theirs,) = shown["schedules"]
    assert describe_schedule(ours, name) == describe_schedule(theirs, name)
