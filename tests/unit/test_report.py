"""The report of one run and of two: what is in the page, that a user's names stay text, where the page is written."""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from captures import (
    NEW,
    OLD,
    failed_snippet,
    long_graph,
    lost_range,
    make_capture,
    make_kernel,
    make_node,
    make_schedule,
    sum_and_add,
)
from click.testing import CliRunner
from diff_captures import draw_capture, mutate_capture
from hypothesis import given, settings
from hypothesis import strategies as st
from rendered import print_to_text

from vmapdbg.commands.cli import main
from vmapdbg.commands.shared.children import finish_capture
from vmapdbg.diff.captures import diff_captures
from vmapdbg.diff.pairing import match_lines
from vmapdbg.model.capture import Access, BufferArg, Capture, Finding, Measured, Realized, SnippetError
from vmapdbg.model.store import dump_document, write_output
from vmapdbg.page.format import list_places
from vmapdbg.page.html.page import render_report
from vmapdbg.page.html.source import SourceFile, SourceView, collect_notes, list_sources, split_code, view_files
from vmapdbg.page.text.lint import print_text
from vmapdbg.page.view import View

EVIL = "</script></style><img src=x onerror=alert(1)>\"'{{ 7*7 }}<!--\x00\x1b[31m\u202e\ud800"


class Page(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        # cells and items are separate words
        self.text += " " * (tag in ("td", "li", "p", "code"))

    def handle_data(self, data: str) -> None:
        self.text += data

    def find(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        return [a for name, a in self.elements if name == tag and all(a.get(k) == v for k, v in wanted.items())]


def render(capture: Capture, *files: SourceFile) -> str:
    return render_report(View.of_one(capture), files or [SourceFile(name, None) for name in ("net.py",)])


def read_data(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.S)
    assert found is not None
    return json.loads(found[1])


def make_program(**changes: Any) -> Capture:
    """Two kernels of two lines; the second reads the buffer that the first writes."""
    capture = sum_and_add("net.py", 3, "1", 900)
    (schedule,) = capture.schedules
    first, second = schedule.kernels
    access = Access("data0", "store", "GLOBAL", 8, 0, 7, "0", None, 3, (), 8, 8, None)
    written = BufferArg("data0", 8, "float", "write"), BufferArg("data1", 8, "float", "read")
    first = replace(first, buffers=written, accesses=(access,), bytes=100)
    return replace(capture, schedules=(replace(schedule, kernels=(first, second)),), **changes)


def with_second(**changes: Any) -> Capture:
    """The program with a change of its second kernel."""
    capture = make_program()
    (schedule,) = capture.schedules
    first, second = schedule.kernels
    return replace(capture, schedules=(replace(schedule, kernels=(first, replace(second, **changes))),))


SOURCE = SourceFile("net.py", OLD)


@pytest.mark.parametrize("sides", [1, 2])
def test_page_loads_nothing_and_runs_only_its_own_script(sides: int) -> None:
    """A page of another person's capture is opened from disk: it must load nothing and run nothing else."""
    text = render(make_program(), SOURCE) if sides == 1 else render_diff()
    page = Page(text)
    policy = page.find("meta", **{"http-equiv": "Content-Security-Policy"})[0]["content"] or ""
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert not {tag for tag, _ in page.elements} & {"link", "img", "iframe", "object", "a", "form"}
    assert not [a for _, a in page.elements if {"src", "href", "style", "xlink:href"} & a.keys()]
    assert not [name for _, a in page.elements for name in a if name.startswith("on")]
    assert "http" not in re.sub(r"http-equiv|<script>.*?</script>", "", text, flags=re.S)


def make_evil(name: str) -> Capture:
    """A capture whose names are all EVIL; some of them end in `name`."""
    finding = Finding("VD101", EVIL, 3, f"{EVIL}:{3 + len(name)}", EVIL, 0, 0, 1, EVIL)
    kernel = make_kernel(EVIL + name, f"{EVIL}{name}\n", nodes=(3,), outputs=(3,), lines=(f"{EVIL}:3",))
    why = Realized((0,), EVIL + name, EVIL)  # type: ignore[arg-type]
    node = make_node(3, EVIL + name, arg=EVIL, dtype=EVIL, line=f"{EVIL}:3", realized=why, method=EVIL)
    schedule = make_schedule(nodes=(node,), kernels=(kernel,))
    return make_capture(schedule, snippet=EVIL + name, findings=(finding,), missing=(EVIL,))


@pytest.mark.parametrize("sides", [1, 2])
def test_what_a_user_names_is_text(sides: int) -> None:
    before, after = make_evil(""), make_evil("bb")
    files = [SourceFile(EVIL, f"\n\n{EVIL}", EVIL)], [SourceFile(EVIL, f"\n{EVIL}\n", EVIL)]
    found = diff_captures(before, after, (EVIL, EVIL + "x"), names=(EVIL, EVIL + "y"))
    view = View.of_one(before) if sides == 1 else View.of_two(before, after, found)
    text = render_report(view, files[1], EVIL, files[0] if sides == 2 else ())
    page = Page(text)
    assert not page.find("img")
    assert "{{ 7*7 }}" in page.text
    assert len(page.find("script")) == 2
    assert len(re.findall("</script>", text)) == 2
    assert len(re.findall("<!--", text)) == 0
    assert not set(text) & set("\x00\x1b\u202e\ud800")
    text.encode("utf-8")
    assert read_data(text)["kernels"][0][0].startswith("</script>")


def test_lines_kernels_and_nodes_are_linked_with_their_cost_and_reasons() -> None:
    text = render(make_program(), SOURCE)
    data, page = read_data(text), Page(text)
    assert [line[0] for line in data["lines"]] == ["net.py:3", "net.py:4"]
    assert [(kernel[0], kernel[1]) for kernel in data["kernels"]] == [("r_64", [0]), ("E_64", [1])]
    nodes = {key: (node[1], node[2]) for key, node in data["nodes"].items()}
    assert nodes == {"0:2": (0, [0]), "0:3": (0, [0]), "0:5": (1, [1])}
    assert {"0", "1"} == {row["data-line"] for row in page.find("tr", **{"class": "has"})}
    boxes = [a for tag, a in page.elements if tag == "g" and "box" in (a.get("class") or "").split()]
    assert {box.get("data-kernels") or box.get("data-node") for box in boxes} == {"0", "1", "0:3", "0:5"}
    title, steps = data["nodes"]["0:3"][4:]
    assert data["texts"][title].startswith("node 0/3 REDUCE")
    assert [data["texts"][step[0]] for step in steps] == ["read by", "ranges", "decision", "kernel"]
    assert data["texts"][steps[-1][1]] == "r_64 #0 computes it and writes its buffer"
    row = text[text.index('<tr class="has" data-line="0">') : text.index('<tr class="has" data-line="1">')]
    said = " ".join(Page(row).text.split())
    assert said.startswith("3 90% 25% x = (a * b).sum()")
    assert "1 asked for: ranges end at it: a reduce, or a reader with loops of its own node 0/3" in said


def test_line_of_a_kernel_is_linked_where_the_capture_says_so() -> None:
    """The store of the one output belongs to its node. A capture does not say which of two outputs a buffer is."""
    capture = make_program()
    assert [a["data-node"] for a in Page(render(capture, SOURCE)).find("code", role="button")] == ["0:3"]
    schedule = capture.schedules[0]
    both = replace(schedule.kernels[0], outputs=(2, 3))
    two = replace(capture, schedules=(replace(schedule, kernels=(both, schedule.kernels[1])),))
    assert Page(render(two, SOURCE)).find("code", role="button") == []


def test_methods_stand_with_what_they_come_to_and_where_they_are_called() -> None:
    made = make_program()
    nodes = tuple(replace(node, method="sum" if node.line == "net.py:3" else None) for node in made.schedules[0].nodes)
    text = render(replace(made, schedules=(replace(made.schedules[0], nodes=nodes),)), SOURCE)
    said = " ".join(Page(text).text.split())
    assert "sum 1 900 90% 100 B 25% net.py:3" in said
    assert "called at" not in render(made, SOURCE)


def test_findings_stand_at_line_kernel_and_on_top() -> None:
    finding = Finding("VD101", "r_64", 3, "net.py:3", "the last one wins", 0, 0, 3, "close it")
    text = render(make_program(findings=(finding,)), SOURCE)
    # and in the box of the drawing
    assert text.count("the last one wins") == 4
    assert '<b class="code-mark">VD101</b>' in text[text.index("data0[0] = ") :]


def test_equal_kernels_are_one() -> None:
    capture = long_graph()
    schedule = capture.schedules[0]
    kernel = replace(schedule.kernels[0], key="same")
    many = replace(capture, schedules=(replace(schedule, kernels=(kernel,) * 50),))
    page = Page(render(many))
    assert len(page.find("details", **{"class": "kernel"})) == 1
    assert "50 kernels, 1 program " in " ".join(page.text.split())


def test_times_that_were_measured_are_shown() -> None:
    text = render(with_second(measured=Measured(2, 3e-6, 3e-6, 4e-6)), SOURCE)
    assert "longest first" in text
    assert "3.00 us, median of 2 launches" in Page(text).text
    assert read_data(text)["kernels"][0][0] == "E_64"


@pytest.mark.parametrize("capture", [make_capture(), failed_snippet(), lost_range(), lost_range(fixed=False)])
def test_every_capture_has_a_page(capture: Capture) -> None:
    """A snippet that failed, or made nothing, has one, too: what there is, is there."""
    text = render(capture)
    if capture.error is not None:
        assert capture.error.type in text
    if not any(schedule.kernels for schedule in capture.schedules):
        assert "No schedule has a kernel" in text


# *** the user's source


def test_the_page_has_the_texts_that_the_capture_has(tmp_path: Path) -> None:
    """A capture may be another person's, and the page may be sent on: no file is read because the capture names it."""
    secret = tmp_path / "secret_settings.py"
    secret.write_text("PASSWORD = 1\n")
    found = on_line("net.py:1"), on_line(f"{secret}:1")
    capture = make_capture(sources={"net.py": "x = 1\n"}, findings=found)
    files = {file.name: file for file in list_sources(capture)}
    assert files["net.py"] == SourceFile("net.py", "x = 1\n")
    assert files[str(secret)].text is None
    assert "not in the capture" in files[str(secret)].note
    assert "PASSWORD" not in print_to_text(lambda console: print_text(capture, 0, console))


def test_a_run_keeps_the_texts_of_the_files_that_its_lines_name(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "large.py").write_text("#" * 500_000)
    os.mkfifo(tmp_path / "fifo")
    places = (f"{tmp_path}/{name}:1" for name in ("a.py", "large.py", "fifo", "gone.py"))
    capture = make_capture(findings=tuple(map(on_line, places)))
    assert finish_capture(capture).sources == {f"{tmp_path}/a.py": "x = 1\n"}


def on_line(line: str) -> Finding:
    return Finding("VD101", None, None, line, "m")


def view_file(file: SourceFile) -> SourceView:
    (view,) = view_files([file], [file], collect_notes(View.of_one(make_program())), ("net.py", "net.py"))
    return view


def test_a_long_file_is_cut_and_lines_that_it_no_longer_has_are_kept() -> None:
    assert list_places(make_program()) == ["net.py:3", "net.py:4"]
    view = view_file(SourceFile("net.py", "one line\n"))
    assert [note.line for note in view.unplaced] == ["net.py:3", "net.py:4"]
    view = view_file(SourceFile("net.py", "\n".join(f"x{n}" for n in range(1000))))
    assert [line.after for _, line in view.lines] == list(range(1, 17))


@pytest.mark.parametrize("text", ["", "x", "x\n\n", "'''a\nb'''\n", "a\x0cb\n", "a\r\nb\r\n", "(\n", "\tx = '<'\n"])
def test_lines_of_source_stay_as_they_are(text: str) -> None:
    """Line numbers are Python's: only its own ends of lines cut."""
    plain = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    assert ["".join(part for _, part in line) for line in split_code(text, "python")] == plain


# *** the command


def test_saved_captures_are_written_as_a_page(tmp_path: Path) -> None:
    saved, page = tmp_path / "run.json", tmp_path / "run.html"
    write_output(saved, dump_document(make_program()))
    done = CliRunner().invoke(main, ["report", str(saved), "-o", str(page)])
    assert (done.exit_code, done.output) == (0, f"vmapdbg: wrote {page}\n")
    assert page.read_text().startswith("<!doctype html>")
    assert stat.S_IMODE(page.stat().st_mode) & 0o400
    for name, capture in (("a.json", BEFORE), ("b.json", AFTER)):
        write_output(tmp_path / name, dump_document(capture))
    output = tmp_path / "report.html"
    done = CliRunner().invoke(main, ["diff", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "-o", str(output)])
    assert done.exit_code == 0, done.output
    text = Page(output.read_text("utf-8")).text
    assert "a.json" in text
    assert "its text is not in the capture" in text


def test_a_kernel_without_a_program_says_so() -> None:
    failed = SnippetError("KeyError", "dtypes.double", None)
    text = render(with_second(name="", source="", failed=failed), SOURCE)
    assert "tinygrad makes no program of it: dtypes.double" in text
    assert "(no program)" in text


def test_a_huge_run_stays_small() -> None:
    """Hundreds of different kernels with long sources: the page says what it leaves out."""
    nodes = tuple(make_node(number, "ADD", src=(number - 1,) * (number > 0), line="net.py:3") for number in range(1200))
    kernels = tuple(
        make_kernel(f"k{n}", f"// {n}\n" * 400, key=str(n), nodes=(4 * n,), outputs=(4 * n,), executed_ops=n)
        for n in range(300)
    )
    text = render(make_capture(make_schedule(nodes=nodes, kernels=kernels), snippet="net.py"), SOURCE)
    assert len(text) < 1_600_000
    assert "are not in the page: vmapdbg show --kernel k0 has them" in text
    assert "functions are boxes" in text
    shown = [
        name
        for names in re.findall(r'data-part="0".*?</svg>', text, flags=re.S)
        for name in re.findall(r'data-kernels="([^"]*)"', names)
    ]
    assert {int(number) for names in shown for number in names.split()} == set(range(300)), "none is left out"


def test_if_boxes_cannot_be_joined_the_boxes_with_the_most_work_are_drawn() -> None:
    """A kernel with a finding is never joined with others."""
    kernels = tuple(make_kernel(f"k{n}", key=str(n), nodes=(n,), outputs=(n,), executed_ops=n) for n in range(200))
    nodes = tuple(make_node(number, "ADD", line="net.py:3") for number in range(200))
    faults = tuple(Finding("VD101", f"k{n}", None, "net.py:3", "lost", 0, n) for n in range(200))
    text = render(make_capture(make_schedule(nodes=nodes, kernels=kernels), snippet="net.py", findings=faults), SOURCE)
    assert "only the 160 of 200 boxes with the most work are drawn" in text


# *** two runs

LINES = match_lines(OLD, NEW, ("old.py", "new.py"))
BEFORE, AFTER = sum_and_add("old.py", 3, "1.0f", 900), sum_and_add("new.py", 4, "2.0f", 300)


def render_diff(before: Capture = BEFORE, after: Capture = AFTER, *files: SourceFile) -> str:
    comparison = View.of_two(before, after, diff_captures(before, after, same_lines=LINES))
    left, right = files or (SourceFile("old.py", OLD), SourceFile("new.py", NEW))
    return render_report(comparison, [right], files_before=[left])


def test_a_diff_has_its_changes_first_and_both_sides_of_totals_lines_and_source() -> None:
    text = render_diff()
    assert [kernel[0] for kernel in read_data(text)["kernels"]] == ["r_64", "E_64"]
    rows = re.findall(r'<details class="kernel (\S+)"', text)
    assert rows == ["changed", "unchanged"]
    page = Page(text)
    assert "1 change, the largest first" in page.text
    # lines that moved are one row with both numbers, an edited one is removed and added
    rows = [a for a in page.find("tr") if "data-line" in a or (a.get("class") or "") in ("added", "removed", "same")]
    kinds = [(a.get("class") or "").split()[-2:] for a in rows if "data-line" in a]
    assert kinds == [["added", "moved"], ["has", "same"]]
    assert [a.get("class") for a in rows].count("removed") == 1
    text = " ".join(page.text.split())
    assert "900 → 300 (0.33x)" in text
    assert "executed ops 1,000 → 400 (0.40x)" in text
    assert "before old.py" in text
    assert "after new.py" in text
    assert len(page.find("span", **{"class": "mk"})) == 2
    assert "1.0f +data0[1]" in text.replace("1.0f+", "1.0f +")
    assert len(page.find("div", **{"class": "pair"})) == 1


def test_lines_that_only_before_has_keep_their_numbers() -> None:
    rest = "import tinygrad\n"
    after = make_capture(snippet="new.py")
    diff = diff_captures(BEFORE, after, same_lines=match_lines(OLD, rest, ("old.py", "new.py")))
    view = View.of_two(BEFORE, after, diff)
    text = render_report(view, [SourceFile("new.py", rest)], files_before=[SourceFile("old.py", OLD)])
    rows = re.findall(r'<tr class="has removed[^>]+>(.*?)</tr>', text, flags=re.S)
    assert [re.findall(r'<td class="num">(.*?)</td>', row)[:2] for row in rows] == [
        [f'<button type="button">{number}</button>', ""] for number in (3, 4)
    ]


def test_lines_kernels_and_nodes_of_two_sides_are_linked() -> None:
    text = render_diff()
    data = read_data(text)
    numbers = {line[1]: number for number, line in enumerate(data["lines"])}
    assert set(numbers) == {"new.py:4", "new.py:5"}
    assert [kernel[1] for kernel in data["kernels"]] == [[numbers["new.py:4"]], [numbers["new.py:5"]]]
    first, second = (numbers["new.py:4"], [0]), (numbers["new.py:5"], [1])
    nodes = {key: (node[1], node[2]) for key, node in data["nodes"].items()}
    assert nodes == {"0:2": first, "0:3": first, "0:5": second}
    boxes = [a for tag, a in Page(text).elements if tag == "g" and "box" in (a.get("class") or "").split()]
    # both sides are drawn
    assert sorted(box.get("data-kernels") or "" for box in boxes if box.get("data-kernels")) == ["0", "0", "1", "1"]
    assert sum("changed" in (box.get("class") or "").split() for box in boxes) == 2


def test_nodes_of_the_two_sides_are_distinguished() -> None:
    extra = make_node(9, "CONTIGUOUS", src=(3,), line="old.py:3", realized=Realized((0,), "always", ""))
    schedule = BEFORE.schedules[0]
    kernels = (replace(schedule.kernels[0], nodes=(2, 3, 9), outputs=(9,)), schedule.kernels[1])
    before = replace(BEFORE, schedules=(replace(schedule, nodes=(*schedule.nodes, extra), kernels=kernels),))
    nodes = read_data(render_diff(before))["nodes"]
    assert "b0:9" in nodes
    assert "0:9" not in nodes


def test_source_of_a_fused_kernel_stands_beside_that_of_its_parts() -> None:
    """As `diff` has it: equal lines are next to each other, whichever part they are from."""
    schedule = BEFORE.schedules[0]
    head, *body, end = schedule.kernels[0].source.splitlines(keepends=True)
    source = "".join([head.replace("r_64", "rE_64"), *body, "  int more = 2;\n", end])
    kernel = replace(schedule.kernels[0], name="rE_64", nodes=(2, 3, 5), outputs=(5,), key="rE", source=source)
    page = render_diff(BEFORE, replace(BEFORE, schedules=(replace(schedule, kernels=(kernel,)),)))
    rows = re.findall(r'<div class="pair( same)?">(.*?)</div>', page)
    texts = [(same, [Page(part).text.strip() for part in re.findall(r"<code.*?</code>", row)]) for same, row in rows]
    assert ("", ["// #0 r_64", ""]) in texts
    assert (" same", ["data0[0] = 1.0f+data0[1];"] * 2) in texts
    assert ("", ["", "int more = 2;"]) in texts
    assert ("", ["// #1 E_64", ""]) in texts


def test_findings_that_are_new_or_gone_stand_on_top_and_at_their_line() -> None:
    gone = replace(BEFORE, findings=(Finding("VD104", "r_64", 3, "old.py:3", "much work", 0, 0, 1, ""),))
    new = replace(AFTER, findings=(Finding("VD101", "r_64", 3, "new.py:5", "lost", 0, 0, 1, ""),))
    text = " ".join(Page(render_diff(gone, new)).text.split())
    assert "Findings: 1 gone, 1 new" in text
    assert "no more VD104: much work" in text
    assert "new: VD101 lost" in text


@settings(max_examples=5, deadline=None)
@given(draw_capture(), st.integers(0, 10**6))
def test_every_diff_has_a_page(capture: Capture, seed: int) -> None:
    render_diff(capture, mutate_capture(capture, seed))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lost_range(fixed=False), lost_range()),
        (lost_range(), failed_snippet()),
        (failed_snippet(), failed_snippet()),
        (make_capture(), long_graph()),
    ],
    ids=["fixed", "failed", "both-failed", "from-nothing"],
)
def test_any_sides_have_a_page(before: Capture, after: Capture) -> None:
    data = read_data(render_diff(before, after))
    for _, lines, title, *_ in data["kernels"]:
        assert all(0 <= line < len(data["lines"]) for line in lines)
        assert 0 <= title < len(data["texts"])
