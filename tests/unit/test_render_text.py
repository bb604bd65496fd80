"""What a user reads in `vmapdbg show`: content, width, and plain text in a pipe."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from captures import (
    CLOSED_SOURCE,
    LOST_SOURCE,
    SNIPPET,
    failed_snippet,
    long_graph,
    lost_range,
    make_capture,
    make_kernel,
    make_node,
    make_schedule,
    many_kernels,
    many_schedules,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from rendered import COLOUR, assert_same_but_coloured, flatten, print_to_text, remove_colours
from rich.cells import cell_len
from rich.console import Console

from vmapdbg.install.patches import PATCHES
from vmapdbg.model.capture import Bufferize, Capture, Finding, Range, SnippetError, VmapEntry
from vmapdbg.model.failure import Failure
from vmapdbg.page.sections import SECTIONS
from vmapdbg.page.text.run import print_capture, print_next_steps, print_patches

WIDTHS = (60, 80, 200)
# the nodes of the rows of a range map
NUMBERS = re.compile(r"^ +(\d+)  [A-Z_]+ ", re.MULTILINE)
CAPTURES = {
    "lost": lost_range(fixed=False),
    "fixed": lost_range(),
    "long": long_graph(),
    "kernels": many_kernels(),
    "failed": failed_snippet(),
    "schedules": many_schedules(),
}


def render(capture: Capture, width: int = 80, *, terminal: bool = False, **options: Any) -> str:
    return print_to_text(lambda console: print_capture(capture, console, **options), width, terminal=terminal)


def section(output: str, title: str) -> str:
    """The lines from a section's title to the next empty line."""
    return output[output.index(f"\n{title}") + 1 :].split("\n\n")[0]


@pytest.mark.parametrize("name", CAPTURES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("show_all", [False, True])
def test_no_line_is_wider_than_the_terminal(name: str, width: int, show_all: bool) -> None:
    for line in render(CAPTURES[name], width, show_all=show_all).splitlines():
        assert cell_len(line) <= width, line


@pytest.mark.parametrize("name", CAPTURES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_pipe_gets_plain_ascii_and_a_terminal_the_same_with_colours(name: str, width: int) -> None:
    output = render(CAPTURES[name], width)
    assert output.isascii()
    assert "\x1b" not in output
    assert all(line == line.rstrip() for line in output.splitlines())
    assert output == render(CAPTURES[name], width)
    assert_same_but_coloured(render(CAPTURES[name], width, terminal=True), output)


def test_no_color_turns_the_colours_off_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    file = io.StringIO()
    print_capture(lost_range(), Console(file=file, width=80, force_terminal=True))
    assert not COLOUR.search(file.getvalue())


@pytest.mark.parametrize("width", WIDTHS)
def test_a_lost_range_is_seen_at_the_top_and_at_its_bufferize_and_a_closed_range_is_not(width: int) -> None:
    output = render(lost_range(fixed=False), width)
    heading = output[output.index("== schedule 0") : output.index("Range map")]
    assert "!! BUFFERIZE of node 18 ADD: ambient rm1 is NOT closed" in heading
    detail = flatten(section(output, "BUFFERIZE"))
    assert "18 ADD (r2) 2 16 B" in detail
    assert "ambient rm1 is NOT closed: all 3 iterations write the same 2 elements, only one of them" in detail
    assert "patches off ambient-ranges" in output
    output = render(lost_range(), width)
    assert "NOT closed" not in output
    assert "patches off" not in output
    assert "18 ADD (rm1*, r2) 3x2 = 6 48 B" in flatten(section(output, "BUFFERIZE"))


@pytest.mark.parametrize("changes", [{"addrspace": "LOCAL"}, {"outcome": "removed"}])
def test_an_open_range_that_loses_nothing_raises_no_alarm(changes: dict[str, Any]) -> None:
    bufferize = replace(Bufferize(1, ("r2",), (), 2, 16, "GLOBAL", "kept", "why"), **changes)
    schedule = make_schedule(nodes=(make_node(1, "ADD", ranges=("r2",), ambient=("rm1",)),), bufferizes=(bufferize,))
    output = flatten(render(make_capture(schedule)))
    assert "NOT closed" not in output


def test_an_open_outer_range_is_lost_like_a_loop() -> None:
    """The kernel that reads the buffer starts after all launches that write it."""
    schedule = make_schedule(
        nodes=(make_node(1, "ADD", ranges=("r2",), ambient=("rm1",)),),
        ranges=(Range("rm1", 3, "OUTER", True),),
        bufferizes=(Bufferize(1, ("r2",), (), 2, 16, "GLOBAL", "kept", "why"),),
    )
    output = render(make_capture(schedule))
    assert "ambient rm1 is NOT closed: all 3 iterations" in flatten(output)
    # a node that is not in the graph has its ranges in vmap_map
    buffer = Bufferize(9, ("r2",), (), 2, 16, "GLOBAL", "kept", "")
    schedule = make_schedule(vmap_map=(VmapEntry(9, ("rm1",)),), bufferizes=(buffer,))
    assert "ambient rm1 is NOT closed" in render(make_capture(schedule))


def test_the_range_map_says_op_shape_ranges_ambient_decision_and_line() -> None:
    rows = section(render(lost_range()), "Range map")
    assert re.search(r"^ +24  VMAPOUT +\(3, 2\)  r0 -> rm1, r0 +lost_range.py:17$", rows, re.M)
    assert re.search(r"^ +18  ADD +\(2,\) +r2 +rm1\* +lost_range.py:15$", rows, re.M)
    assert "realized, ending-ranges: r1 of REDUCE_AXIS 23 ends below it" in rows
    assert "vmap LOOP rm1=3" in rows
    assert re.search(r"REDUCE +r1=2  r3=2  r4=2", rows)
    # from outputs to inputs
    assert NUMBERS.findall(rows) == ["24", "23", "22", "21", "20", "18", "11", "10", "8", "7", "6", "5", "4", "3", "2"]


def test_what_is_too_wide_for_the_range_map_moves_below_or_is_folded_and_nothing_is_lost() -> None:
    node = make_node(
        3,
        "REDUCE_AXIS",
        (2, 1, 4, 8, 8, 1, 1, 1),
        in_ranges=("r0", "0", "r1", "r2", "r3", "r4", "r5", "r6"),
        out_ranges=("r0", "0", "r1", "r2", "r3", "0", "0", "0"),
        ambient=("rm1",),
        line=f"{SNIPPET}:3",
    )
    rows = section(render(make_capture(make_schedule(nodes=(node,))), 60), "Range map")
    assert "shape (2, 1, 4, 8, 8, 1, 1, 1)" in rows
    assert ":3" in rows
    assert "rm1*" in rows
    assert "r0, 0, r1, r2, r3, 0, 0, 0" in flatten(rows)
    expression = "+".join(f"r{number}*{number}" for number in range(80))
    schedule = make_schedule(nodes=(make_node(1, "PAD", ranges=(expression,)),))
    for width in WIDTHS:
        assert expression in render(make_capture(schedule), width).replace("\n", "").replace(" ", "")


def test_a_long_graph_is_cut_to_what_matters_with_the_right_count_unless_all_is_asked_for() -> None:
    rows = section(render(long_graph(300)), "Range map")
    assert NUMBERS.findall(rows) == ["250", "200", "150", "100", "50"]
    assert "5 of 300 nodes" in rows
    assert "... 295 more not shown: --all shows them" in rows
    assert "asked for, consumers-disagree, only axis 0 (LOCAL): ADD 101 and ADD 102" in flatten(rows)
    rows = section(render(long_graph(300), show_all=True), "Range map")
    assert len(NUMBERS.findall(rows)) == 300
    assert "not shown" not in rows


def test_a_long_graph_keeps_scope_borders_and_inputs_but_no_constants() -> None:
    nodes = [make_node(number, "ADD", src=(number - 1,), ranges=("r0",)) for number in range(1, 30)]
    nodes += [
        make_node(30, "VMAPIN", src=(29,), ranges=("r0",), ambient=("rm1",)),
        make_node(31, "VMAPIN", src=(29,), ranges=("r0",), ambient=("rm2",)),
        make_node(32, "NEG", src=(31,), ranges=("r0",), ambient=("rm2",)),
        make_node(33, "MUL", src=(30, 32), ranges=("r0",), ambient=("rm1", "rm2")),
    ]
    rows = section(render(make_capture(make_schedule(nodes=tuple(nodes)))), "Range map")
    assert NUMBERS.findall(rows) == ["33", "31", "30"]
    assert "rm1*, rm2*" in rows
    assert "30 more not shown" in rows
    # constants and devices are left out of a short one, too
    nodes = (
        make_node(0, "DEVICE", None),
        make_node(1, "CONST", (), ranges=()),
        make_node(2, "EXPAND", (2,), src=(1,), in_ranges=("0",), out_ranges=("r0",)),
        make_node(3, "BUFFER", (2,), src=(0,), ranges=("r0",)),
        make_node(4, "MUL", (2,), src=(3, 2), ranges=("r0",)),
    )
    rows = section(render(make_capture(make_schedule(nodes=nodes))), "Range map")
    assert NUMBERS.findall(rows) == ["4", "3"]


def test_vmap_map_has_a_line_for_nodes_of_the_same_ranges() -> None:
    entries = [VmapEntry(number, ("rm1",)) for number in (4, 5, 6, 7, 12)] + [VmapEntry(9, ("rm1", "rm2"))]
    ranges = (Range("rm1", 3, "LOOP", True), Range("rm2", 5, "LOOP", True))
    rows = section(render(make_capture(make_schedule(vmap_map=tuple(entries), ranges=ranges))), "vmap_map")
    assert re.search(r"rm1\* +3 +5  4-7, 12$", rows, re.M)
    assert re.search(r"rm1\*, rm2\* +3x5 +1  9$", rows, re.M)
    assert "vmap_map  empty" in render(make_capture(make_schedule()))


def test_a_removed_bufferize_says_so_and_why() -> None:
    bufferize = Bufferize(1, ("r2",), (), 2_000_000, 8_000_000, "GLOBAL", "removed", "one consumer, ratio 1.0")
    output = flatten(section(render(make_capture(make_schedule(bufferizes=(bufferize,)))), "BUFFERIZE"))
    assert "0 kept (0 B GLOBAL), 1 removed" in output
    assert "2,000,000 7.6 MiB GLOBAL removed: one consumer, ratio 1.0" in output


@pytest.mark.parametrize("width", WIDTHS)
def test_a_kernel_has_its_cost_launch_buffers_nodes_lines_and_findings(width: int) -> None:
    rows = flatten(section(render(lost_range(), width), "Kernels"))
    assert "2 kernels, 201 ops executed, 248 B moved" in rows
    for fact in (
        "r_3_2_2_2 69 52% ###",
        "r_3_2_2 132 100% ######",
        "writes data0_6 (6 double)",
        "reads data1_6 (6 double), data2_2 (2 int)",
        "launch global 1x1x1, local -",
        "nodes 4-8, 10, 11, 18",
        "stores 18 ADD",
        "lines lost_range.py:14, 15",
        "2.2x",
        "144 B",
    ):
        assert fact in rows
    rows = flatten(section(render(many_kernels(), width), "Kernels"))
    assert "launch global 32x16x1, local 16x1x1, LOCAL 40,960 B" in rows
    assert "launched 12 times" in rows
    assert "37.2x" in rows
    assert rows.count("VD102 40,960 bytes of LOCAL memory, Metal has 32,768") == 1
    assert rows.index("r_7_32_16_4_5") < rows.index("VD102") < rows.index("r_8_32_16_4_6") < rows.index("VD104")


def test_identical_kernels_stand_in_one_row_and_their_source_once() -> None:
    output = render(many_kernels())
    assert "24 kernels (19 distinct)" in output
    assert "5 times the same, also #11, 15, 19, 23" in output
    assert output.count("void E_32_256_4(") == 1
    assert "#7, 11, 15, 19, 23 E_32_256_4: same source as #3 E_32_256_4 of schedule 0" in output
    assert section(render(many_kernels(), show_all=True), "Kernels").count("E_32_256_4") == 6


def test_kernels_without_ops_are_compared_by_bytes_and_print_symbolic_dimensions() -> None:
    kernels = tuple(make_kernel(f"E_{n}", executed_ops=0, bytes=n * 100, redundancy=None) for n in (1, 4))
    rows = section(render(make_capture(make_schedule(kernels=kernels))), "Kernels")
    assert "25%" in rows
    assert "100%" in rows
    # symbolic and missing launch dimensions
    kernel = make_kernel("r_n", global_size=("n", 4), local_size=None, executed_ops=0, bytes=0)
    assert "global nx4, local -" in render(make_capture(make_schedule(kernels=(kernel,))))


@pytest.mark.parametrize(("fixed", "source"), [(True, CLOSED_SOURCE), (False, LOST_SOURCE)])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_source_of_seed_000_is_there_whole(fixed: bool, source: str, width: int) -> None:
    output = render(lost_range(fixed=fixed), width)
    assert flatten(source) in flatten(output[output.index("\nSource") :])
    assert "(data0_6+alu0) = (val3+val0);" in output if fixed else "*(data0_2+0) = (val3+val0);" in output


def test_a_folded_source_line_is_cut_between_tokens() -> None:
    terms = "+".join(f"value{number}*other{number}" for number in range(30))
    kernel = make_kernel("r", f"void r() {{\n  float alu0 = ({terms});\n}}\n")
    output = render(make_capture(make_schedule(kernels=(kernel,))), 60, only=("source",))
    folded = [line.strip() for line in output.splitlines() if "value" in line]
    assert len(folded) > 8
    assert "".join(folded) == f"float alu0 = ({terms});"
    assert not any(re.search(r"\w$", line) and re.match(r"\w", after) for line, after in pairwise(folded))


@pytest.mark.parametrize("target", ["c", "metal", "cuda", "opencl", "hip", "wgsl", "llvm", "some-new-target"])
def test_source_of_every_target_survives_highlighting(target: str) -> None:
    lines = ('  kernel void f() { /* [red] */ a[r4] = "x\\n"; }', "%1 = add i32 %0, 1", "  @compute fn main() {}")
    source = "\n\n" + "\n".join(lines) + "\n\n"
    kernel = make_kernel("f", source, target=target)
    capture = make_capture(make_schedule(kernels=(kernel,)), target=target)
    for terminal in (False, True):
        output = remove_colours(render(capture, terminal=terminal, only=("source",)))
        assert all(line in output for line in lines)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("terminal", [False, True])
def test_markup_in_the_users_strings_stays_text(width: int, terminal: bool) -> None:
    node = make_node(1, "ADD", ("[red]n",), ranges=("[r4]",), ambient=("[bold]",), line="[b].py:3")
    kernel = make_kernel("[blue]k", "[/red] a[r4]", buffers=(), lines=("[b].py:3",))
    capture = make_capture(
        make_schedule(nodes=(node,), kernels=(kernel,), line=":smile:.py:1"),
        snippet="[link=x]s[/link].py",
        error=SnippetError("[E]", "[/nope] [red]", None),
        findings=(Finding("[VD]", None, None, None, "[/] [green]"),),
    )
    output = remove_colours(render(capture, width, terminal=terminal))
    for text in ("[red]n", "[r4]", "[bold]*", "[b].py:3", "[blue]k", "[/red] a[r4]", ":smile:.py:1"):
        assert text in output
    for text in ("[link=x]s[/link].py", "failed: [E]", "[/nope] [red]", "[VD] [/] [green]"):
        assert text in output


def test_escapes_and_letters_that_a_console_cannot_encode_are_escaped() -> None:
    capture = failed_snippet()
    error = SnippetError("ValueError", "\x1b[31mred\x07 \udcff \u202eabc\ttab\r", None)
    output = render(replace(capture, error=error))
    assert not re.search("[\x00-\x09\x0b-\x1f\udcff\u202e]", output)
    assert "\\x1b[31mred\\x07 \\udcff \\u202eabc" in output
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    print_capture(replace(failed_snippet(), snippet="größe.py"), Console(file=file, width=80))
    file.flush()
    assert b"gr\\xf6\\xdfe.py" in file.buffer.getvalue()  # type: ignore[attr-defined]


def test_a_snippet_that_failed_says_so() -> None:
    output = render(failed_snippet())
    assert "the snippet failed at lost_range.py:12: ValueError" in output
    assert "[red](3, 4)[/red] to [r4]\n  second line of the message" in output
    after = render(failed_snippet(make_schedule(kernels=(make_kernel("E_4"),))))
    assert "the snippet failed" in after
    assert "E_4" in after


def test_repeated_schedules_get_one_line_unless_they_are_few_or_asked_for() -> None:
    output = render(many_schedules(7))
    assert re.findall(r"^== schedule (\d)", output, re.M) == ["0", "3"]
    assert "-- schedule 1  0 kernels + 1 copy  (only copies; --schedule 1)\n" in output
    assert "-- schedule 6  1 kernel  (the kernels of schedule 0 again; --schedule 6)\n" in output
    # if there are few schedules, only a trivial one is a line; a schedule that is asked for is shown whole
    heading = re.compile(r"^== schedule (\d)", re.M)
    assert heading.findall(render(many_schedules(4))) == ["0", "2", "3"]
    assert heading.findall(render(many_schedules(7), schedule="all")) == list("0123456")
    assert heading.findall(render(many_schedules(7), schedule=5)) == ["5"]


def test_a_small_run_begins_with_what_it_comes_to() -> None:
    head = render(lost_range()).split("==")[0]
    assert re.search(r"^[\d,]+ ops executed, .* moved", head, re.M)
    assert "ops executed, " not in render(lost_range(), only=("kernels",)).split("==")[0]


def test_a_page_ends_with_the_next_commands() -> None:
    """Each can be typed as it is: what to change comes first, then why, then whether the values are right."""

    def list_commands(capture: Capture) -> list[str]:
        title, *steps = print_to_text(lambda console: print_next_steps(capture, console), 80).splitlines()[1:]
        assert title == "Next"
        return [re.split(r"\s{2,}", line.strip())[0] for line in steps]

    two = (make_kernel("r_4", nodes=(1,), outputs=(1,)), make_kernel("E_4", nodes=(2,), outputs=(2,)))
    nodes = (make_node(1, "REDUCE", line="mine.py:3"), make_node(2, "ADD", src=(1,), line="mine.py:4"))
    run = make_capture(make_schedule(4, kernels=two, nodes=nodes))
    assert list_commands(run) == ["vmapdbg why 4/1", "vmapdbg check"]
    found = replace(run, findings=(Finding("VD104", "r_4", 1, "mine.py:3", "wasteful"),))
    assert list_commands(found) == ["vmapdbg lint", "vmapdbg why 4/1", "vmapdbg check"]
    # nothing is between the kernels
    assert list_commands(make_capture(make_schedule(kernels=two[:1], nodes=nodes[:1]))) == ["vmapdbg check"]


def test_buffers_are_sorted_by_bytes_with_their_line() -> None:
    capture = lost_range()
    (schedule,) = capture.schedules
    made = schedule.bufferizes[0]
    sizes = {node.id: n * 8 for n, node in enumerate(schedule.nodes[:4], start=1)}
    buffers = tuple(replace(made, node=node, bytes=size, outcome="kept") for node, size in sizes.items())
    text = section(render(replace(capture, schedules=(replace(schedule, bufferizes=buffers),))), "BUFFERIZE")
    # without the title
    _, _, text = text.partition("\n")
    assert re.findall(r"(\d+) B +GLOBAL", text) == ["32", "24", "16", "8"]
    assert all((node.line or "").rsplit("/", 1)[-1] in text for node in schedule.nodes[:4])


def test_an_unknown_schedule_or_section_is_an_error_before_any_output() -> None:
    with pytest.raises(Failure, match="there is no schedule 9: the last is 6"):
        render(many_schedules(7), schedule=9)
    with pytest.raises(ValueError, match=r"unknown section 'rangs'"):
        render(lost_range(), only=("rangs",))


@pytest.mark.parametrize("name", SECTIONS)
def test_only_prints_the_chosen_section(name: str) -> None:
    titles = dict(zip(SECTIONS, ("Range map", "vmap_map", "BUFFERIZE", "Kernels", "Source"), strict=True))
    output = render(lost_range(), only=(name,))
    assert [key for key, title in titles.items() if f"\n{title}" in output] == [name]
    assert output.startswith(SNIPPET)


def test_a_finding_is_printed_at_its_node_or_at_the_end_if_its_section_is_not_printed() -> None:
    found = Finding("VD107", None, 77, None, "range r0 is left open", 0)
    capture = replace(long_graph(300), findings=(found,))
    rows = section(render(capture), "Range map")
    assert re.search(r"^ +77  ADD .*\n +VD107 range r0 is left open$", rows, re.M)
    assert render(capture).count("VD107") == 1
    assert "1 finding\n" in render(capture)
    output = render(many_kernels(), only=("vmap",))
    assert "\nFindings\n  VD102 40,960 bytes" in output
    assert "(kernel r_7_32_16_4_5)" in output


def test_files_with_the_same_name_are_distinguished_by_their_full_path() -> None:
    lines = ("/home/me/a/model.py:3", "/home/me/b/model.py:3", "/home/me/b/model.py:20")
    output = render(make_capture(make_schedule(kernels=(make_kernel("E_4", lines=lines),))))
    assert "lines a/model.py:3; b/model.py:3, 20" in output
    assert "a/model.py is /home/me/a/model.py" in output


@pytest.mark.parametrize("width", WIDTHS)
def test_the_patches_table_says_state_and_summary(width: int) -> None:
    output = print_to_text(lambda console: print_patches(PATCHES, {"ambient-ranges": True}, console), width)
    assert all(cell_len(line) <= width for line in output.splitlines())
    assert re.search(r"^vmap-ops +always ", output, re.M)
    assert re.search(r"^ambient-ranges +on ", output, re.M)
    assert re.search(r"^close-ranges +off ", output, re.M)
    assert all(f" {' '.join(patch.summary.split()[:2])}" in flatten(output) for patch in PATCHES)


texts = st.text(max_size=120)


@settings(max_examples=60)
@given(texts, texts, texts, st.integers(min_value=30, max_value=200), st.booleans())
def test_no_string_of_the_user_breaks_the_output(one: str, two: str, three: str, width: int, show_all: bool) -> None:
    node = make_node(1, "ADD", (two, 3), ranges=(one, three), ambient=(two,), line=one)
    kernel = make_kernel(three, two, target="c", lines=(one, two))
    bufferize = Bufferize(1, (one,), (two,), 2, 16, "GLOBAL", "kept", three)
    axis_type: Any = three
    ranges = (Range(one, two, axis_type, True),)
    schedule = make_schedule(nodes=(node,), kernels=(kernel,), bufferizes=(bufferize,), ranges=ranges)
    capture = make_capture(schedule, error=SnippetError(one, two, three), snippet=three)
    output = render(capture, width, show_all=show_all)
    assert all(cell_len(line) <= width for line in output.split("\n"))
    output.encode("utf-8")


def test_a_failure_stands_out_on_a_terminal() -> None:
    # rich drops the style of a line that has one style as a whole
    failed = replace(make_capture(), error=SnippetError("ValueError", "no such axis", None))
    headline = next(line for line in render(failed, terminal=True).splitlines() if "the snippet failed" in line)
    assert COLOUR.search(headline)
