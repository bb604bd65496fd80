"""What stands above the schedules of a diff: the verdict, the two sides and how they ended, what lint finds on one."""

from __future__ import annotations

from rich.text import Text

from vmapdbg.diff import CaptureDiff, Side, Totals
from vmapdbg.diff.source import align_sources
from vmapdbg.model.capture import SnippetError
from vmapdbg.model.wording import format_plural, shorten_commit
from vmapdbg.page.format import Places, format_bytes, format_seconds, label_patches
from vmapdbg.page.text.diff_lines import format_line_pair
from vmapdbg.page.text.diff_view import AFTER, BEFORE, STATUS_STYLES, format_ratio, format_short
from vmapdbg.page.text.layout import Page
from vmapdbg.page.text.view import ALERT

_MOST_FINDINGS = 5
_DIED = "ChildDied"


def format_findings(page: Page, diff: CaptureDiff, places: Places) -> list[Text]:
    """Returns what lint finds on one side alone."""
    gone, new = len(diff.findings_gone), len(diff.findings_new)
    if not gone and not new:
        return []
    counts = [f"{count} {word}" for count, word in ((gone, "gone"), (new, "new")) if count]
    lines = [Text(), *page.head("Findings", ", ".join(counts))]
    for sign, style, findings in (("-", BEFORE, diff.findings_gone), ("+", AFTER, diff.findings_new)):
        for found in findings[:_MOST_FINDINGS]:
            sentence = f" {found.message}{places.format(found.line, ' ({})')}"
            lines += page.wrap((f"{sign} {found.code}", style), sentence, hang=4)
        if len(findings) > _MOST_FINDINGS:
            more = format_plural(len(findings) - _MOST_FINDINGS, "finding")
            lines += page.wrap((f"{sign} {more} more", style))
    return lines


# *** the verdict


def format_verdict(page: Page, diff: CaptureDiff) -> Text:
    """Returns the verdict in one line."""
    before, after = diff.before, diff.after
    if before.error is not None and after.error is not None and not before.schedules + after.schedules:
        return page.text(
            f"nothing to compare: {_describe_failed(before)} before, {_describe_failed(after)} after", ALERT
        )
    if before.error != after.error:
        ends = (f"{name} {_describe_end(side)}" for name, side in (("before", before), ("after", after)))
        parts = [page.text("; ".join(ends))]
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
    if not side.schedules:
        return f"RAISED {side.error.type} before its first schedule"
    return f"RAISED {side.error.type} after {format_plural(side.schedules, 'schedule')}"


def _describe_failed(side: Side) -> str:
    assert side.error is not None
    return "DIED" if side.error.type == _DIED else f"RAISED {side.error.type}"


def _describe_counts(page: Page, diff: CaptureDiff, totals: list[Text]) -> list[Text]:
    """What there is to say where the number of kernels did not change."""
    if diff.before.totals.kernels != diff.after.totals.kernels:
        return []
    kernels = [item for schedule in diff.schedules for item in schedule.kernels]
    # a kernel that only one side has is none of the other's that changed
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


def describe_totals(page: Page, before: Totals, after: Totals) -> list[Text]:
    """Returns `kernels 3 -> 2`, `moved 1.0 MiB -> 0.8 MiB (0.80x)`: only what changed."""
    parts: list[Text] = []
    for label, name, write, ratio in (
        ("kernels", "kernels", str, False),
        ("copies", "copies", str, False),
        ("executed ops", "executed_ops", format_short, True),
        ("moved", "bytes", format_bytes, True),
        ("buffers", "buffer_bytes", format_bytes, True),
        ("LOCAL", "local_bytes", format_bytes, False),
        ("threads", "threads", format_short, False),
    ):
        one, other = getattr(before, name), getattr(after, name)
        if one != other:
            change = page.join(f"{label} ", (write(one), BEFORE), " -> ", (write(other), AFTER))
            if ratio:
                change.append(format_ratio(one, other))
            parts.append(change)
    return parts


def describe_time(page: Page, before: Totals, after: Totals) -> list[Text]:
    """Returns `time in kernels 1.2 ms -> 0.8 ms (0.67x)`, nothing where a side was not timed."""
    if not before.seconds or not after.seconds:
        return []
    one, other = format_seconds(before.seconds), format_seconds(after.seconds)
    ratio = format_ratio(before.seconds, after.seconds)
    return [page.join("time in kernels ", (one, BEFORE), " -> ", (other, AFTER), ratio)]


# *** the sides


def format_sides(page: Page, diff: CaptureDiff) -> list[Text]:
    """Returns what the sides are: what they have in common, and what only one has."""
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
    lines: list[Text] = []
    for label, style, parts in (
        ("before", BEFORE, only_before),
        ("after ", AFTER, only_after),
        ("both  ", "dim", both),
    ):
        if parts:
            lines += page.wrap((f"{label}  ", style), ", ".join(parts), hang=8)
    if not diff.same_snippet:
        lines += page.wrap(("different snippets: compared as far as their graphs agree", "bold yellow"), hang=2)
    return lines


def _label_side(side: Side) -> list[str]:
    versions = side.versions
    tinygrad = f"tinygrad {versions.tinygrad}"
    if versions.commit is not None:
        tinygrad += f" ({shorten_commit(versions.commit)})"
    if side.mode == "observe":
        tinygrad += ", observed"
    return [
        f"target {side.target}",
        tinygrad,
        f"Python {versions.python}",
        f"vmapdbg {versions.vmapdbg}",
    ]


def format_errors(page: Page, diff: CaptureDiff, places: Places) -> list[Text]:
    """Returns how the sides that failed ended."""
    lines: list[Text] = []
    error = diff.before.error
    if error is not None and error == diff.after.error:
        return _format_error(page, "both sides", error, places)
    for name, side in (("before", diff.before), ("after", diff.after)):
        if side.error is not None:
            lines += _format_error(page, name, side.error, places)
    return lines


def _format_error(page: Page, name: str, error: SnippetError, places: Places) -> list[Text]:
    what = "died" if error.type == _DIED else f"raised {error.type}"
    sentence = f"!! {name} {what}{places.format(error.line, ' at {}')}"
    lines = [Text(), *page.wrap((sentence, ALERT), hang=3)]
    for part in error.message.splitlines():
        lines += page.wrap(part, indent=3, hang=2)
    return lines


def format_printed(page: Page, diff: CaptureDiff) -> list[Text]:
    """Returns the first line that the snippets printed differently."""
    printed = diff.printed
    if printed is None or (printed.equal and not page.show_all):
        return []
    if printed.equal:
        return [Text(), *page.head("Printed", "the same")]
    lines = [Text(), *page.head("Printed", f"the first difference is in line {printed.line}")]
    if printed.before is not None and printed.after is not None:
        pair = align_sources(page.text(printed.before).plain, page.text(printed.after).plain, ())[0]
        if pair.before is not None and pair.after is not None:
            return lines + format_line_pair(page, pair)
    for sign, style, line in (("-", BEFORE, printed.before), ("+", AFTER, printed.after)):
        shown = ("it printed no more", "dim") if line is None else line
        lines += page.wrap((f"{sign} ", style), shown, hang=2)
    return lines
