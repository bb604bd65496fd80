"""The page of several states of the patches: what each switch shows, and that what is equal is there once."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from captures import failed_snippet, lost_range, make_capture, make_kernel, make_schedule, many_kernels
from test_report import read_data

from vmapdbg.install.patches import ALL, SWITCHABLE, PatchState, list_states, parse_patches
from vmapdbg.model.capture import Capture, Finding, Measured
from vmapdbg.page.html.page import render_report, render_states
from vmapdbg.page.html.source import SourceFile, list_lines
from vmapdbg.page.view import View

NAMES = ["all", "none", *SWITCHABLE]


def make_states(first: Capture, **others: Capture) -> list[tuple[PatchState, Capture]]:
    """Every state has `first`, except the states in `others`: `none`, or a patch with `_` for `-`."""
    known = {name.replace("_", "-"): capture for name, capture in others.items()}
    return [(state, known.get(name, first)) for name, state in zip(NAMES, list_states(), strict=True)]


def render(states: list[tuple[PatchState, Capture]]) -> str:
    names = {line.rpartition(":")[0] for _, capture in states for line in list_lines(capture)}
    return render_states(states, [SourceFile(name, "x = 1\n" * 200) for name in sorted(names)])


def read_switches(page: str) -> dict[str, str]:
    """What is said beside each switch."""
    return dict(re.findall(r"<span>([^<]+)</span><small[^>]*>([^<]+)</small>", page))


def write_main(data: dict[str, Any], state: int) -> str:
    page = data["pages"][data["states"][state][0]]
    return "".join(data["parts"][part] for part in (*page["overview"], *page["main"]))


def test_every_patch_of_the_table_is_a_state() -> None:
    states = list_states()
    assert [state.patches for state in states[:2]] == [ALL, parse_patches("none")]
    assert {state.off: state.patches for state in states[2:]} == {
        name: parse_patches(f"all,-{name}") for name in SWITCHABLE
    }
    assert states[2].words == f"without {SWITCHABLE[0]}"


def test_each_switch_says_what_comes_of_it() -> None:
    kernels = [make_kernel(f"E_{number}", key=str(number)) for number in range(3)]
    one, two = make_schedule(kernels=(kernels[0],)), make_schedule(kernels=tuple(kernels[1:]))
    heavy = make_schedule(kernels=(replace(kernels[1], executed_ops=250),))
    page = render(
        make_states(
            make_capture(one),
            none=make_capture(two),
            close_ranges=make_capture(heavy),
            local_budget=make_capture(heavy, findings=(Finding("VD101", "E_1", None, None, "lost"),)),
            fuse_broadcast=make_capture(replace(one, line="net.py:3")),
            fusion_guard=failed_snippet(),
        )
    )
    said = read_switches(page)
    assert list(said) == [*SWITCHABLE, "none"]
    assert said["ambient-ranges"] == "without it nothing changes"
    assert said["none"] == "2 kernels (+1), 2.00x ops, 2.00x bytes"
    assert said["close-ranges"] == "without it 1 kernel, 2.50x ops"
    assert said["local-budget"] == "without it 1 kernel, 2.50x ops, 1 finding"
    assert said["fuse-broadcast"] == "without it the same 1 kernel"
    assert said["fusion-guard"] == "without it ValueError"


def test_times_are_compared_where_there_are_some() -> None:
    """Not of the same kernels: what these took differs by chance."""

    def time(key: str, seconds: float) -> Capture:
        kernel = make_kernel("E_4", key=key, measured=Measured(1, seconds, seconds, seconds))
        return make_capture(make_schedule(kernels=(kernel,)))

    said = read_switches(render(make_states(time("a", 1e-3), none=time("b", 2e-3), close_ranges=time("a", 3e-3))))
    assert said["none"] == "1 kernel, 2.00x time"
    assert said["close-ranges"] == "without it the same 1 kernel"


def test_states_that_are_equal_are_one_page() -> None:
    """All of it: which patches are on is said by the switches alone."""
    first = lost_range()
    data = read_data(render(make_states(first, none=lost_range(fixed=False), local_budget=replace(first, patches={}))))
    assert len(data["pages"]) == 2
    assert [page for page, _, _ in data["states"]] == [0, 1, *[0] * len(SWITCHABLE)]


def test_each_state_has_the_page_that_it_has_alone() -> None:
    before, after = lost_range(fixed=False), lost_range()
    page = render(make_states(after, none=before))
    data = read_data(page)
    files = [SourceFile(name, "x = 1\n" * 200) for name in sorted({x.rpartition(":")[0] for x in list_lines(after)})]
    for state, capture in ((0, after), (1, before)):
        alone = render_report(View.of_one(replace(capture, patches={})), files)
        body = alone[alone.index('aria-label="Overview">') :]
        shown = "".join(write_main(data, state).split())
        for part in re.findall(r"<(?:tr|li|details|svg)\b[^>]*>", body):
            assert "".join(part.split()) in shown


def test_an_equal_part_is_there_once() -> None:
    """Of 24 kernels one has another number of launches: of the rest source, drawing and explanations are shared."""
    first = many_kernels()
    schedule = first.schedules[0]
    kernels = (*schedule.kernels[:-2], replace(schedule.kernels[-2], launches=5), schedule.kernels[-1])
    other = replace(first, schedules=(replace(schedule, kernels=kernels),))
    page = render(make_states(first, none=other))
    assert len(read_data(page)["pages"]) == 2
    for kernel in kernels:
        assert page.count(f"{kernel.name}(") == 1, kernel.name
    alone = len(render(make_states(first)))
    assert len(page) < 1.5 * alone


def test_a_program_has_one_number_in_all_states() -> None:
    """Without the first of 24 kernels the others move up in the list: what names them stays, and is there once."""
    first = many_kernels()
    schedule = first.schedules[0]
    other = replace(first, schedules=(replace(schedule, kernels=schedule.kernels[1:]),))
    data = read_data(render(make_states(first, none=other)))
    numbers = [page["numbers"] for page in data["pages"]]
    assert len(numbers[0]) == len(numbers[1]) + 1
    assert set(numbers[1]) < set(numbers[0])
    rows = [dict(zip(page["numbers"], page["kernels"], strict=True)) for page in data["pages"]]
    for number, row in rows[1].items():
        name, lines, *_ = data["rows"][row]
        assert [name, lines] == data["rows"][rows[0][number]][:2]
    for name in {kernel.name for kernel in schedule.kernels[1:]}:
        assert sum(f">{name}</span>" in part for part in data["parts"]) <= 2, "one for each share of all ops"


def test_tags_are_in_the_page_as_they_are() -> None:
    """Each `<` as an escape made a tenth of a page; what a user names is escaped as ever."""
    page = render(make_states(lost_range(), none=lost_range(fixed=False)))
    found = re.search(r'id="data">(.*?)</script>', page, flags=re.S)
    assert found is not None
    assert "<details" in found[1]
    assert not re.search(r"<[!?]|</?script", found[1], flags=re.I)


def test_what_is_said_of_a_state_and_where_its_switches_stand() -> None:
    states = read_data(render(make_states(lost_range(), close_ranges=failed_snippet())))["states"]
    number = 2 + SWITCHABLE.index("close-ranges")
    assert states[0] == [0, "Shown: all patches on, 2 kernels", [*[True] * len(SWITCHABLE), False]]
    assert states[1][1:] == ["Shown: no patch on, 2 kernels", [*[False] * len(SWITCHABLE), True]]
    assert states[number][1] == "Shown: without close-ranges, 0 kernels, ended by ValueError"
    assert states[number][2] == [*(name != "close-ranges" for name in SWITCHABLE), False]


def test_a_state_that_failed_shows_its_error() -> None:
    data = read_data(render(make_states(lost_range(), close_ranges=failed_snippet())))
    failed = write_main(data, 2 + SWITCHABLE.index("close-ranges"))
    assert "shape mismatch" in failed
    assert "shape mismatch" not in write_main(data, 0)


@pytest.mark.parametrize("evil", ["</script><img src=x onerror=alert(1)>", "\x1c\x1d{{ 7*7 }}"])
def test_names_stay_text_and_cut_nothing(evil: str) -> None:
    kernel = make_kernel(evil, evil, key="1", lines=(f"{evil}:1",))
    capture = replace(make_capture(make_schedule(kernels=(kernel,))), snippet=evil)
    page = render(make_states(capture, none=make_capture()))
    data = read_data(page)
    assert "<img" not in page
    assert not re.search("[\x1c\x1d]", page)
    assert "<img" not in write_main(data, 0)
    assert data["rows"][data["pages"][0]["kernels"][0]][0].startswith(evil[:2] if evil[0] == "<" else "\\x1c")
