"""Prints two runs on a terminal or into a pipe: the verdict, the two sides, then each schedule that changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from vmapdbg.diff import CaptureDiff, ScheduleDiff, Side
from vmapdbg.diff.source import align_sources
from vmapdbg.model.capture import SnippetError
from vmapdbg.model.schedule_index import group_equal
from vmapdbg.model.wording import format_plural, inflect, shorten_commit
from vmapdbg.page.format import Places, format_ids, label_patches
from vmapdbg.page.text.layout import AFTER, ALERT, BEFORE, Page
from vmapdbg.page.text.schedule import describe_time, describe_totals, name_only_side, name_schedule, print_schedule
from vmapdbg.page.text.source import add_one_column
from vmapdbg.page.text.view import STATUS_STYLES, RunView, ScheduleView
from vmapdbg.page.view import Selected

_MOST_FINDINGS = 5
_DIED = "ChildDied"
_BRIEF_SIGNS = {"unchanged": ("=", "dim"), "only before": ("-", BEFORE), "only after": ("+", AFTER)}


def print_diff(
    diff: CaptureDiff,
    console: Console,
    *,
    selected: Sequence[Selected] | None = None,
    show_all: bool = False,
    unified: bool = False,
) -> None:
    """Prints a diff: first the verdict in one line, then only what changed.

    `show_all` prints equal parts, too, and folds nothing. Changed source is side by side from 100 columns on; below
    that, or if one side has none, it is in one column; with `unified` it is printed as hunks. `selected` are the parts
    to print; None prints all schedules.
    """
    page = print_head(diff, console, show_all=show_all)
    run = RunView(page, diff=diff, unified=unified)
    if selected is not None:
        for item in selected:
            print_schedule(ScheduleView(run, item.part, item.whole))
        return
    waiting: list[tuple[ScheduleDiff, str]] = []
    for schedule, reason in _list_brief(diff, show_all=show_all):
        if reason:
            waiting.append((schedule, reason))
            continue
        _print_brief(page, waiting)
        waiting = []
        print_schedule(ScheduleView(run, schedule))
    _print_brief(page, waiting)
    page.print()


def print_verdict(diff: CaptureDiff, console: Console) -> None:
    """Prints only the verdict, the sides and the findings."""
    print_head(diff, console)


def print_head(diff: CaptureDiff, console: Console, *, show_all: bool = False) -> Page:
    """Prints the verdict, the sides, and what they printed; returns the page for the rest."""
    page = Page(console, Places(_collect_places(diff), diff.after.snippet), show_all=show_all)
    page.add(_format_verdict(page, diff))
    _print_sides(page, diff)
    _print_errors(page, diff)
    _print_printed(page, diff)
    _print_findings(page, diff)
    page.print()
    return page


def _collect_places(diff: CaptureDiff) -> Iterator[str | None]:
    for side in (diff.before, diff.after):
        yield side.error and side.error.line
    yield from (found.line for found in (*diff.findings_gone, *diff.findings_new))
    for schedule in diff.schedules:
        yield from (schedule.line_before, schedule.line_after)
        yield from (item.line for item in schedule.same_nodes)
        yield from (node.line for item in schedule.nodes for node in (item.before, item.after))
        yield from (node.line for node in (*schedule.nodes_only_before, *schedule.nodes_only_after))
        for change in schedule.kernels:
            yield from (line for side in (*change.before, *change.after) for line in side.kernel.lines)


def _list_brief(diff: CaptureDiff, *, show_all: bool) -> list[tuple[ScheduleDiff, str]]:
    """Pairs each schedule with the reason why it gets only one line; no reason: it is printed whole."""
    if show_all:
        return [(schedule, "") for schedule in diff.schedules]
    seen: dict[str, ScheduleDiff] = {}
    found: list[tuple[ScheduleDiff, str]] = []
    for schedule in diff.schedules:
        reason = ""
        if schedule.is_empty:
            reason = "unchanged"
        elif not schedule.is_pair:
            reason = name_only_side(schedule)
        else:
            # layers of a network change alike, except for their place and their values
            nameless = replace(schedule, before=0, after=0, line_before=None, line_after=None, outputs=())
            first = seen.setdefault(repr(nameless), schedule)
            if first is not schedule:
                reason = f"the changes of schedule {name_schedule(first)} again"
        found.append((schedule, reason))
    return found


def _print_brief(page: Page, waiting: Sequence[tuple[ScheduleDiff, str]]) -> None:
    if waiting:
        page.add()
    for group in group_equal(waiting, lambda item: item[1]):
        schedules, reason = [schedule for schedule, _ in group], group[0][1]
        totals = [item for schedule in schedules if (item := schedule.totals_after or schedule.totals_before)]
        held = format_plural(sum(item.kernels for item in totals), "kernel")
        if copies := sum(item.copies for item in totals):
            held += f" + {format_plural(copies, 'copy', 'copies')}"
        sign, style = _BRIEF_SIGNS.get(reason, ("~", "dim"))
        names = format_ids(item.index for item in schedules)
        if any(item.is_pair and item.before != item.after for item in schedules):
            names = ", ".join(map(name_schedule, schedules))
        name = f"{sign} {inflect(len(schedules), 'schedule')} {names}"
        page.add((name, style), f"  {reason}", (f"  ({held})", "dim"))


# *** the head


def _print_findings(page: Page, diff: CaptureDiff) -> None:
    """Prints the findings of lint that only one side has."""
    gone, new = len(diff.findings_gone), len(diff.findings_new)
    counts = [f"{count} {word}" for count, word in ((gone, "gone"), (new, "new")) if count]
    if counts:
        page.head("Findings", ", ".join(counts))
    for sign, style, findings in (("-", BEFORE, diff.findings_gone), ("+", AFTER, diff.findings_new)):
        for found in findings[:_MOST_FINDINGS]:
            sentence = f" {found.message}{page.places.format(found.line, ' ({})')}"
            page.add((f"{sign} {found.code}", style), sentence, hang=4)
        if len(findings) > _MOST_FINDINGS:
            more = format_plural(len(findings) - _MOST_FINDINGS, "finding")
            page.add((f"{sign} {more} more", style))


# *** the verdict


def _format_verdict(page: Page, diff: CaptureDiff) -> Text:
    """Returns the verdict in one line."""
    before, after = diff.before, diff.after
    if before.error is not None and after.error is not None and not before.schedules + after.schedules:
        ends = f"{_describe_failure(before.error)} before, {_describe_failure(after.error)} after"
        return page.text(f"nothing to compare: {ends}", ALERT)
    if before.error != after.error:
        parts = [page.text(f"before {_describe_end(before)}; after {_describe_end(after)}")]
    else:
        parts = describe_totals(page, before.totals, after.totals)
        parts = _describe_counts(page, diff, parts) + parts + describe_time(page, before.totals, after.totals)
    if diff.values != "unknown":
        parts.append(page.text(f"values {diff.values}", STATUS_STYLES.get(diff.values, "")))
    if diff.printed is not None and not diff.printed.equal:
        parts.append(page.text("printed differently", ALERT))
    verdict = Text(", ").join(parts)
    if diff.is_empty:
        return page.join(("no change", "bold green"), ": ", verdict)
    verdict.stylize_before("bold")
    return verdict


def _describe_end(side: Side) -> str:
    if side.error is None:
        return f"made {format_plural(side.schedules, 'schedule')}, {format_plural(side.totals.kernels, 'kernel')}"
    if side.error.type == _DIED:
        return "DIED"
    when = "before its first schedule"
    if side.schedules:
        when = f"after {format_plural(side.schedules, 'schedule')}"
    return f"{_describe_failure(side.error)} {when}"


def _describe_failure(error: SnippetError) -> str:
    return "DIED" if error.type == _DIED else f"RAISED {error.type}"


def _describe_counts(page: Page, diff: CaptureDiff, totals: list[Text]) -> list[Text]:
    """Returns the counts for two runs with the same number of kernels."""
    if diff.before.totals.kernels != diff.after.totals.kernels:
        return []
    kernels = [item for schedule in diff.schedules for item in schedule.kernels]
    # a kernel of one side is not a changed kernel of the other
    changed = sum(item.status not in ("unchanged", "only-before") for item in kernels)
    every = format_plural(diff.after.totals.kernels, "kernel")
    if changed:
        return [page.text(f"{changed} of {every} changed")]
    same = [page.text(f"{every} the same")]
    if diff.is_empty or totals:
        return same
    nodes = sum(len(item.nodes) for item in diff.schedules)
    buffers = sum(part.status != "unchanged" for item in diff.schedules for part in item.bufferizes)
    if nodes:
        same.append(page.text(f"{format_plural(nodes, 'node')} changed"))
    if buffers:
        same.append(page.text(f"{buffers} {diff.schedules[-1].buffer_op_after} changed"))
    return same


# *** the sides


def _print_sides(page: Page, diff: CaptureDiff) -> None:
    """Prints what both sides have in common, and what only one side has."""
    before, after = diff.before, diff.after
    both, only_before, only_after = [after.snippet], list[str](), list[str]()
    if not diff.same_snippet:
        both, only_before, only_after = [], [before.snippet], [after.snippet]
    if before.name != after.name:
        only_before, only_after = [before.name, *only_before], [after.name, *only_after]
    for one, other in zip(_label_side(before), _label_side(after), strict=True):
        if one == other:
            both.append(one)
        else:
            only_before.append(one)
            only_after.append(other)
    if on := [name for name, state in after.patches.items() if state and before.patches.get(name, False)]:
        both.append(f"patches on {', '.join(on)}")
    only_before += label_patches(before.patches, after.patches)
    only_after += label_patches(after.patches, before.patches)
    for label, style, parts in (
        ("before", BEFORE, only_before),
        ("after ", AFTER, only_after),
        ("both  ", "dim", both),
    ):
        if parts:
            page.add((f"{label}  ", style), ", ".join(parts), hang=8)
    if not diff.same_snippet:
        page.add(("different snippets: compared as far as their graphs agree", "bold yellow"))


def _label_side(side: Side) -> list[str]:
    versions = side.versions
    tinygrad = f"tinygrad {versions.tinygrad}"
    if versions.commit is not None:
        tinygrad += f" ({shorten_commit(versions.commit)})"
    if side.mode == "observe":
        tinygrad += ", observed"
    return [f"target {side.target}", tinygrad, f"Python {versions.python}", f"vmapdbg {versions.vmapdbg}"]


def _print_errors(page: Page, diff: CaptureDiff) -> None:
    """Prints how the sides that failed ended."""
    errors = {"before": diff.before.error, "after": diff.after.error}
    if errors["before"] == errors["after"]:
        errors = {"both sides": diff.after.error}
    for name, error in errors.items():
        if error is None:
            continue
        what = "died" if error.type == _DIED else f"raised {error.type}"
        page.add()
        page.add((f"!! {name} {what}{page.places.format(error.line, ' at {}')}", ALERT), hang=3)
        for part in error.message.splitlines():
            page.add(part, indent=3)


def _print_printed(page: Page, diff: CaptureDiff) -> None:
    """Prints the first line that the snippets printed differently."""
    printed = diff.printed
    if printed is None or (printed.equal and not page.show_all):
        return
    if printed.equal:
        page.head("Printed", "the same")
        return
    page.head("Printed", f"the first difference is in line {printed.line}")
    if printed.before is not None and printed.after is not None:
        pair = align_sources(page.text(printed.before).plain, page.text(printed.after).plain, ())[0]
        if pair.before is not None and pair.after is not None:
            add_one_column(page, [pair], ([Text(pair.before)], [Text(pair.after)]))
            return
    for sign, style, line in (("-", BEFORE, printed.before), ("+", AFTER, printed.after)):
        page.add((f"{sign} ", style), ("it printed no more", "dim") if line is None else line)
