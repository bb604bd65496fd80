"""Prints one run on a terminal or into a pipe: the header, then each schedule section by section."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from rich.console import Console
from rich.text import Text

from vmapdbg.install.patches import Patch
from vmapdbg.model.capture import Capture, Schedule
from vmapdbg.model.schedule_index import count_kernels, find_distinct
from vmapdbg.model.wording import format_known, format_plural
from vmapdbg.page.crash_sentences import describe_crash
from vmapdbg.page.findings import Findings
from vmapdbg.page.format import Places
from vmapdbg.page.sections import SECTIONS
from vmapdbg.page.text.layout import Column, Page, Part, Row, lay_out_table
from vmapdbg.page.text.overview import format_overview
from vmapdbg.page.text.schedule import describe_schedule, print_schedule
from vmapdbg.page.text.view import ALERT, RunView, ScheduleView
from vmapdbg.page.view import Selected, View, pair_with_itself

_MANY_SCHEDULES = 4


def print_capture(
    capture: Capture,
    console: Console,
    *,
    only: Collection[str] = SECTIONS,
    schedule: int | Literal["all"] | None = None,
    show_all: bool = False,
    selected: Sequence[Selected] | None = None,
) -> None:
    """Prints a capture: header, schedules, and the findings that belong to nothing printed.

    `only` chooses sections. `schedule` is the index of one schedule, or `all`. None prints all schedules, but if there
    are more than four, a schedule with nothing new (only copies, or the kernels of an earlier one) gets one line.
    `show_all` prints every node and every kernel in a row of its own. `selected` are the parts of schedules to print;
    None prints everything. Raises ValueError for an unknown section or index.
    """
    pairs = [item.part for item in selected or ()]
    if selected is None:
        pairs = [pair_with_itself(item) for item in _choose_schedules(capture, schedule)]
    if unknown := sorted(set(only) - set(SECTIONS)):
        raise ValueError(f"unknown section {unknown[0]!r}: choose from {', '.join(SECTIONS)}")
    page, places = Page(console, show_all=show_all), Places.of(capture)
    run = RunView(page, places, capture=capture, copies_source=selected is not None)
    page.show(_format_header(capture, page, places))
    brief: dict[int, str] = {}
    if selected is None and schedule is None and len(pairs) > _MANY_SCHEDULES:
        brief = _list_brief(capture, run.findings)
    is_after_brief = False
    for pair in pairs:
        view = ScheduleView(run, pair)
        if pair.index not in brief:
            print_schedule(view, only)
        else:
            # no blank line between schedules with one line each
            if not is_after_brief:
                page.show([Text()])
            page.show(_format_brief(view, brief[pair.index]))
        is_after_brief = pair.index in brief
    if selected is None and (schedule is None or schedule == "all"):
        page.show(_format_rest(run))


def print_overview(view: View, console: Console, hidden: str) -> None:
    """Prints the header and the overview of a run; `hidden` says how to see the rest."""
    page, places = Page(console), Places.of(view.after)
    page.show(_format_header(view.after, page, places))
    page.show(format_overview(view, page, places, hidden))


def print_patches(patches: Sequence[Patch], states: Mapping[str, bool], console: Console) -> None:
    """Prints the table of patches: name, `on`, `off` or `always`, what each does, and the seed it is from.

    `states` maps a patch's name to whether it is on; a switchable patch that it does not name is off.
    """
    page = Page(console)
    columns = (
        Column("patch", comfort=16),
        Column("state", comfort=6),
        Column("what it does", comfort=30, most=100, leaves=2, label="", own_line=True),
        Column("seed", comfort=8, leaves=1),
    )
    rows: list[Row] = []
    for patch in patches:
        if not patch.switchable:
            state, style = "always", "green"
        elif states.get(patch.name, False):
            state, style = "on", "green"
        else:
            state, style = "off", ALERT
        rows.append(Row([(patch.name, "bold"), (state, style), patch.summary, patch.seed]))
    page.show(lay_out_table(page, columns, rows, indent=0))


def _choose_schedules(capture: Capture, schedule: int | str | None) -> list[Schedule]:
    if schedule is None or schedule == "all":
        return list(capture.schedules)
    chosen = [item for item in capture.schedules if item.index == schedule]
    if not chosen:
        known = ", ".join(str(item.index) for item in capture.schedules[:3]) or "none"
        if len(capture.schedules) > 3:
            known += f", ... {capture.schedules[-1].index}"
        raise ValueError(f"no schedule {schedule}: the capture has {known}")
    return chosen


def _format_header(capture: Capture, page: Page, places: Places) -> list[Text]:
    versions = capture.versions
    with_what = f"tinygrad {versions.tinygrad}, Python {versions.python}, vmapdbg {versions.vmapdbg}"
    kernels = count_kernels(capture.schedules)
    summary = f"{format_plural(len(capture.schedules), 'schedule')}, {format_plural(kernels, 'kernel')}"
    if capture.findings:
        summary += f", {format_plural(len(capture.findings), 'finding')}"
    parts: list[list[Part]] = [
        [(capture.snippet, "bold"), f"  {summary}"],
        [("target      ", "dim"), f"{capture.target}   ({with_what})"],
    ]
    if capture.mode == "observe":
        parts += _format_observed(capture)
    else:
        parts += _format_patches(capture)
    for short, path in places.full.items():
        if path != capture.snippet and not path.endswith("/" + capture.snippet):
            parts.append([("file        ", "dim"), f"{short} is {path}"])
    lines = [line for part in parts for line in page.wrap(*part, hang=12)]
    if capture.error is not None:
        where = places.format(capture.error.line, " at {}")
        lines += page.wrap((f"the snippet failed{where}: {capture.error.type}", ALERT), hang=2)
        for part in [*capture.error.message.splitlines(), *describe_crash(capture.error.crash)]:
            lines += page.wrap(part, indent=2, hang=2)
    if not capture.schedules:
        why = "the snippet computed no tensor" if capture.error is None else "it failed before its first"
        lines += page.wrap((f"no schedule: {why}", "bold"))
    return lines


def _format_patches(capture: Capture) -> list[list[Part]]:
    on = ", ".join(name for name, state in capture.patches.items() if state) or "none"
    off = ", ".join(name for name, state in capture.patches.items() if not state)
    parts: list[list[Part]] = [[("patches on  ", "dim"), on]]
    if off:
        parts.append([("patches off ", "dim"), (off, "bold yellow")])
    return parts


def _format_observed(capture: Capture) -> list[list[Part]]:
    """Returns which tinygrad was observed, and what could not be observed."""
    versions = capture.versions
    tree = versions.tree
    if tree == versions.tinygrad:
        tree = ""
    where = ", ".join(filter(None, (tree, versions.commit)))
    parts: list[list[Part]] = [
        [("tinygrad    ", "dim"), f"{versions.tinygrad}, observed (nothing replaced)", format_known("  {}", where)]
    ]
    for sentence in capture.missing:
        parts.append([("missing     ", "dim"), (sentence, "bold yellow")])
    return parts


def _list_brief(capture: Capture, findings: Findings) -> dict[int, str]:
    """Returns index -> reason for each schedule with nothing new."""
    brief: dict[int, str] = {}
    first = {index: one for one, again in find_distinct(capture).items() for index in again}
    for schedule in capture.schedules:
        if not schedule.kernels:
            brief[schedule.index] = "only copies" if schedule.copies else "nothing to run"
        elif schedule.index in first and not schedule.not_in_key and not _has_findings(schedule, findings):
            brief[schedule.index] = f"the kernels of schedule {first[schedule.index]} again"
    return brief


def _has_findings(schedule: Schedule, findings: Findings) -> bool:
    return any(findings.has_for_node(node, schedule.index) for node in schedule.nodes) or any(
        found.schedule is not None
        for number, kernel in enumerate(schedule.kernels)
        for found in findings.find_for_kernel(kernel, schedule.index, number)
    )


def _format_brief(view: ScheduleView, reason: str) -> list[Text]:
    option = (f"  ({reason}; --schedule {view.pair.index})", "dim")
    return view.page.wrap(*describe_schedule(view, "--"), option, hang=3)


def _format_rest(run: RunView) -> list[Text]:
    """Returns the findings that belong to nothing printed."""
    page, places = run.page, run.places
    rest = run.findings.take_rest()
    if not rest:
        return []
    lines = [Text(), page.text("Findings", "bold")]
    for found in rest:
        kernel, node = format_known("kernel {}", found.kernel), format_known("node {}", found.node)
        about = ", ".join(filter(None, (kernel, node, places.format(found.line))))
        where = format_known(" ({})", about)
        lines += page.wrap((found.code, ALERT), " ", found.message, where, indent=2, hang=2)
    return lines
