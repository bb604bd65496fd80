"""Prints one run on a terminal or into a pipe: the header, then each schedule section by section."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from rich.console import Console

from vmapdbg.install.patches import Patch
from vmapdbg.model.capture import Capture, Schedule
from vmapdbg.model.schedule_index import count_kernels, find_distinct
from vmapdbg.model.wording import format_known, format_plural
from vmapdbg.page.crash_sentences import describe_crash
from vmapdbg.page.findings import Findings
from vmapdbg.page.format import Places
from vmapdbg.page.sections import SECTIONS
from vmapdbg.page.text.layout import ALERT, Cell, Page, Piece, Row
from vmapdbg.page.text.overview import add_overview
from vmapdbg.page.text.schedule import describe_schedule, print_schedule
from vmapdbg.page.text.view import RunView, ScheduleView
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
    page = Page(console, Places.of(capture), show_all=show_all)
    run = RunView(page, capture=capture, copies_source=selected is not None)
    _print_header(capture, page)
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
                page.add()
            option = (f"  ({brief[pair.index]}; --schedule {pair.index})", "dim")
            page.add(*describe_schedule(view, "--"), option, hang=3)
        is_after_brief = pair.index in brief
    if selected is None and (schedule is None or schedule == "all"):
        _print_rest(run)
    page.print()


def print_overview(view: View, console: Console, hidden: str) -> None:
    """Prints the header and the overview of a run; `hidden` says how to see the rest."""
    page = Page(console, Places.of(view.after))
    _print_header(view.after, page)
    add_overview(view, page, hidden)
    page.print()


def print_patches(patches: Sequence[Patch], states: Mapping[str, bool], console: Console) -> None:
    """Prints the table of patches: name, `on`, `off` or `always`, what each does, and the seed it is from.

    `states` maps a patch's name to whether it is on; a switchable patch that it does not name is off.
    """
    page = Page(console)
    rows: list[Row] = []
    for patch in patches:
        state = ("off", ALERT)
        if not patch.switchable:
            state = ("always", "green")
        elif states.get(patch.name, False):
            state = ("on", "green")
        cells = [
            Cell("patch", (patch.name, "bold"), comfort=16),
            Cell("state", state, comfort=6),
            Cell("what it does", patch.summary, comfort=30, most=100, leaves=2, label="", own_line=True),
            Cell("seed", patch.seed, comfort=8, leaves=1),
        ]
        rows.append(Row(cells))
    page.table(rows, indent=0)
    page.print()


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


def _print_header(capture: Capture, page: Page) -> None:
    versions = capture.versions
    with_what = f"tinygrad {versions.tinygrad}, Python {versions.python}, vmapdbg {versions.vmapdbg}"
    kernels = count_kernels(capture.schedules)
    summary = f"{format_plural(len(capture.schedules), 'schedule')}, {format_plural(kernels, 'kernel')}"
    if capture.findings:
        summary += f", {format_plural(len(capture.findings), 'finding')}"
    page.add((capture.snippet, "bold"), f"  {summary}", hang=12)
    facts: list[tuple[str, Piece]] = [("target", f"{capture.target}   ({with_what})")]
    if capture.mode == "observe":
        # which tinygrad was observed, and what could not be observed
        tree = "" if versions.tree == versions.tinygrad else versions.tree
        where = format_known("  {}", ", ".join(filter(None, (tree, versions.commit))))
        facts.append(("tinygrad", f"{versions.tinygrad}, observed (nothing replaced){where}"))
        facts += [("missing", (sentence, "bold yellow")) for sentence in capture.missing]
    else:
        facts.append(("patches on", ", ".join(name for name, state in capture.patches.items() if state) or "none"))
        if off := ", ".join(name for name, state in capture.patches.items() if not state):
            facts.append(("patches off", (off, "bold yellow")))
    for short, path in page.places.full.items():
        if path != capture.snippet and not path.endswith("/" + capture.snippet):
            facts.append(("file", f"{short} is {path}"))
    for label, fact in facts:
        page.add((f"{label:<12}", "dim"), fact, hang=12)
    if capture.error is not None:
        where = page.places.format(capture.error.line, " at {}")
        page.add((f"the snippet failed{where}: {capture.error.type}", ALERT))
        for part in [*capture.error.message.splitlines(), *describe_crash(capture.error.crash)]:
            page.add(part, indent=2)
    if not capture.schedules:
        why = "the snippet computed no tensor" if capture.error is None else "it failed before its first"
        page.add((f"no schedule: {why}", "bold"))
    page.print()


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


def _print_rest(run: RunView) -> None:
    """Prints the findings that belong to nothing printed."""
    page, rest = run.page, run.findings.take_rest()
    if rest:
        page.head("Findings")
    for found in rest:
        kernel, node = format_known("kernel {}", found.kernel), format_known("node {}", found.node)
        about = ", ".join(filter(None, (kernel, node, page.places.format(found.line))))
        page.add((found.code, ALERT), f" {found.message}", format_known(" ({})", about), indent=2)
