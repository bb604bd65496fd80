"""Prints a diff on a terminal or into a pipe: the verdict, the two sides, then each schedule that changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from vmapdbg.diff import CaptureDiff, ScheduleDiff, Side, Totals, ValueDiff
from vmapdbg.diff.source import align_sources
from vmapdbg.model import SnippetError
from vmapdbg.render.format import Places, format_bytes, format_ids, format_shape
from vmapdbg.render.text.diff_kernels import format_kernels
from vmapdbg.render.text.diff_ranges import format_bufferizes, format_nodes, format_vmap_map
from vmapdbg.render.text.diff_source import DiffListing, format_line_pair
from vmapdbg.render.text.diff_view import AFTER, BEFORE, DiffView, format_ratio, format_short
from vmapdbg.render.text.layout import Page
from vmapdbg.render.text.view import ALERT
from vmapdbg.wording import format_plural

_WIDEST_RULE = 100
_MOST_OUTPUTS = 8
_MOST_FINDINGS = 5
_DIED = "ChildDied"


def print_diff(diff: CaptureDiff, console: Console, *, show_all: bool = False, unified: bool = False) -> None:
    """Prints a diff: first the verdict in one line, then only what changed.

    `show_all` prints what is the same, too, and folds nothing. Changed source stands side by side from 100 columns
    on, below that, or where one side has none, in one column; with `unified` as hunks.
    """
    page = Page(console, show_all=show_all)
    places = Places.of(_collect_places(diff), diff.after.snippet)
    page.show(page.wrap(_format_verdict(page, diff), hang=2))
    page.show([*_format_sides(page, diff), *_format_errors(page, diff, places), *_format_printed(page, diff)])
    page.show(_format_findings(page, diff, places))
    listing = DiffListing(unified=unified)
    waiting: list[tuple[ScheduleDiff, str]] = []
    for schedule, reason in _find_brief(diff, show_all=show_all):
        if reason:
            waiting.append((schedule, reason))
            continue
        page.show(_format_brief(page, waiting))
        waiting = []
        _print_schedule(DiffView(diff, schedule, page, places), listing)
    page.show(_format_brief(page, waiting))


def _collect_places(diff: CaptureDiff) -> Iterator[str]:
    for side in (diff.before, diff.after):
        if side.error is not None and side.error.line is not None:
            yield side.error.line
    yield from (found.line for found in (*diff.findings_gone, *diff.findings_new) if found.line is not None)
    for schedule in diff.schedules:
        lines = [schedule.line_before, schedule.line_after, *(item.line for item in schedule.same_nodes)]
        lines += [node.line for item in schedule.nodes for node in (item.before, item.after)]
        lines += [node.line for node in (*schedule.nodes_only_before, *schedule.nodes_only_after)]
        yield from (line for line in lines if line is not None)
        for change in schedule.kernels:
            yield from (line for side in (*change.before, *change.after) for line in side.kernel.lines)


def _format_findings(page: Page, diff: CaptureDiff, places: Places) -> list[Text]:
    """What lint finds on one side alone."""
    gone, new = len(diff.findings_gone), len(diff.findings_new)
    if not gone and not new:
        return []
    counts = [f"{count} {word}" for count, word in ((gone, "gone"), (new, "new")) if count]
    lines = [Text(), page.join(("Findings", "bold"), (f"  {', '.join(counts)}", "dim"))]
    for sign, style, findings in (("-", BEFORE, diff.findings_gone), ("+", AFTER, diff.findings_new)):
        for found in findings[:_MOST_FINDINGS]:
            where = f" ({places.format(found.line)})" if found.line is not None else ""
            lines += page.wrap(page.join((f"{sign} {found.code}", style), f" {found.message}{where}"), hang=4)
        if len(findings) > _MOST_FINDINGS:
            more = f"{sign} {format_plural(len(findings) - _MOST_FINDINGS, 'finding')} more"
            lines += page.wrap(page.text(more, style))
    return lines


# *** the verdict


def _format_verdict(page: Page, diff: CaptureDiff) -> Text:
    before, after = diff.before, diff.after
    if before.error != after.error:
        ends = (f"{name} {_describe_end(side)}" for name, side in (("before", before), ("after", after)))
        parts = [page.text("; ".join(ends))]
    else:
        parts = _describe_totals(page, before.totals, after.totals)
        parts = _describe_counts(page, diff, parts) + parts
    if diff.values != "unknown":
        parts.append(page.text(f"values {diff.values}", ALERT if diff.values == "different" else ""))
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
    if _has_died(side):
        return "DIED"
    where = f" after {format_plural(side.schedules, 'schedule')}" if side.schedules else " before its first schedule"
    return f"RAISED {side.error.type}{where}"


def _has_died(side: Side) -> bool:
    return side.error is not None and side.error.type == _DIED


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
    more = [f"{format_plural(nodes, 'node')} changed"] if nodes else []
    more += [f"{buffers} BUFFERIZE changed"] if buffers else []
    return [*same, *map(page.text, more)]


def _describe_totals(page: Page, before: Totals, after: Totals) -> list[Text]:
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
            share = format_ratio(one, other) if ratio else ""
            arrow = [(write(one), BEFORE), " -> ", (write(other), AFTER), share]
            parts.append(page.join(f"{label} ", *arrow))
    return parts


# *** the sides


def _format_sides(page: Page, diff: CaptureDiff) -> list[Text]:
    both = [diff.after.snippet] if diff.same_snippet else []
    only: tuple[list[str], list[str]] = ([], []) if diff.same_snippet else ([diff.before.snippet], [diff.after.snippet])
    for one, other in zip(_label_side(diff.before), _label_side(diff.after), strict=True):
        if one == other:
            both.append(one)
        else:
            only[0].append(one)
            only[1].append(other)
    both += _label_common(diff.before.patches, diff.after.patches)
    for place, side in enumerate(_label_patches(diff.before.patches, diff.after.patches)):
        only[place].extend(side)
    lines: list[Text] = []
    for label, style, parts in (("before", BEFORE, only[0]), ("after ", AFTER, only[1]), ("both  ", "dim", both)):
        if parts:
            lines += page.wrap(page.join((f"{label}  ", style), ", ".join(parts)), hang=8)
    if not diff.same_snippet:
        note = "different snippets: compared as far as their graphs agree"
        lines += page.wrap(page.text(note, "bold yellow"), hang=2)
    return lines


def _label_side(side: Side) -> list[str]:
    versions = side.versions
    return [
        f"target {side.target}",
        f"tinygrad {versions.tinygrad}",
        f"Python {versions.python}",
        f"vmapdbg {versions.vmapdbg}",
    ]


def _label_patches(before: dict[str, bool], after: dict[str, bool]) -> tuple[list[str], list[str]]:
    differ = [name for name in dict.fromkeys([*before, *after]) if before.get(name, False) != after.get(name, False)]
    if not differ:
        return [], []
    labels: list[list[str]] = []
    for states in (before, after):
        on = [name for name in differ if states.get(name, False)]
        off = [name for name in differ if not states.get(name, False)]
        labels.append([f"patches {word} {', '.join(names)}" for word, names in (("on", on), ("off", off)) if names])
    return labels[0], labels[1]


def _label_common(before: dict[str, bool], after: dict[str, bool]) -> list[str]:
    on = [name for name, state in after.items() if state and before.get(name, False)]
    return [f"patches on {', '.join(on)}"] if on else []


def _format_errors(page: Page, diff: CaptureDiff, places: Places) -> list[Text]:
    lines: list[Text] = []
    error = diff.before.error
    if error is not None and error == diff.after.error:
        return _format_error(page, "both sides", error, places)
    for name, side in (("before", diff.before), ("after", diff.after)):
        if side.error is not None:
            lines += _format_error(page, name, side.error, places)
    return lines


def _format_error(page: Page, name: str, error: SnippetError, places: Places) -> list[Text]:
    where = f" at {places.format(error.line)}" if error.line is not None else ""
    what = "died" if error.type == _DIED else f"raised {error.type}"
    lines = [Text(), *page.wrap(page.text(f"!! {name} {what}{where}", ALERT), hang=3)]
    for part in error.message.splitlines():
        lines += page.wrap(page.text(part), indent=3, hang=2)
    return lines


def _format_printed(page: Page, diff: CaptureDiff) -> list[Text]:
    printed = diff.printed
    if printed is None or (printed.equal and not page.show_all):
        return []
    if printed.equal:
        return [Text(), page.join(("Printed", "bold"), ("  the same", "dim"))]
    lines = [Text(), page.join(("Printed", "bold"), (f"  the first difference is in line {printed.line}", "dim"))]
    if printed.before is not None and printed.after is not None:
        pair = align_sources(page.text(printed.before).plain, page.text(printed.after).plain, ())[0]
        if pair.before is not None and pair.after is not None:
            return lines + format_line_pair(page, pair)
    for sign, style, line in (("-", BEFORE, printed.before), ("+", AFTER, printed.after)):
        shown = page.text("it printed no more", "dim") if line is None else page.text(line)
        lines += page.wrap(page.join((f"{sign} ", style), shown), hang=2)
    return lines


# *** the schedules


def _find_brief(diff: CaptureDiff, *, show_all: bool) -> list[tuple[ScheduleDiff, str]]:
    """Pairs each schedule with why it gets only one line; an empty reason: it does not."""
    seen: dict[str, ScheduleDiff] = {}
    found: list[tuple[ScheduleDiff, str]] = []
    for schedule in diff.schedules:
        reason = ""
        if show_all:
            reason = ""
        elif schedule.is_empty:
            reason = "unchanged"
        elif not schedule.is_pair:
            reason = "only before" if schedule.after is None else "only after"
        else:
            nameless = replace(schedule, before=0, after=0, line_before=None, line_after=None, outputs=())
            first = seen.setdefault(repr(nameless), schedule)
            reason = "" if first is schedule else f"the changes of schedule {_format_index(first)} again"
        found.append((schedule, reason))
    return found


def _format_index(schedule: ScheduleDiff) -> str:
    if schedule.before == schedule.after or schedule.before is None:
        return str(schedule.after)
    return str(schedule.before) if schedule.after is None else f"{schedule.before} -> {schedule.after}"


def _format_brief(page: Page, waiting: Iterable[tuple[ScheduleDiff, str]]) -> list[Text]:
    groups: dict[str, list[ScheduleDiff]] = {}
    for schedule, reason in waiting:
        groups.setdefault(reason, []).append(schedule)
    lines = [Text()] if groups else []
    for reason, schedules in groups.items():
        indexes = [item.after if item.before is None else item.before for item in schedules]
        moved = [item for item in schedules if item.is_pair and item.before != item.after]
        names = ", ".join(map(_format_index, schedules)) if moved else format_ids(i for i in indexes if i is not None)
        noun = "schedule" if len(schedules) == 1 else "schedules"
        totals = [item.totals_after or item.totals_before for item in schedules]
        kernels = sum(item.kernels for item in totals if item is not None)
        copies = sum(item.copies for item in totals if item is not None)
        held = format_plural(kernels, "kernel") + (f" + {format_plural(copies, 'copy', 'copies')}" if copies else "")
        sign, style = {"only before": ("-", BEFORE), "only after": ("+", AFTER)}.get(reason, ("=", "dim"))
        sign = "~" if reason.endswith("again") else sign
        line = page.join((f"{sign} {noun} {names}", style), f"  {reason}", (f"  ({held})", "dim"))
        lines += page.wrap(line, hang=2)
    return lines


def _print_schedule(view: DiffView, listing: DiffListing) -> None:
    page = view.page
    page.show([Text(), *_format_heading(view), *_format_totals(view), *_format_legend(view)])
    for section in (
        _format_values,
        format_nodes,
        format_vmap_map,
        format_bufferizes,
        format_kernels,
        listing.format,
    ):
        if lines := section(view):
            page.show([Text(), *lines])
    page.show(_format_same(view))


def _format_heading(view: DiffView) -> list[Text]:
    page, schedule = view.page, view.schedule
    line = view.change(view.places.format(schedule.line_before), view.places.format(schedule.line_after))
    if schedule.line_before is None or schedule.line_after is None:
        line = page.text(view.places.format(schedule.line_after or schedule.line_before))
    only = "" if schedule.is_pair else "  only before" if schedule.after is None else "  only after"
    heading = page.join(
        (f"== schedule {_format_index(schedule)}", "bold"), "  " if line.plain else "", line, (only, "bold"), " "
    )
    width = min(page.width, _WIDEST_RULE)
    if heading.cell_len < width:
        heading.append("=" * (width - heading.cell_len), style="bold")
    return page.wrap(heading, hang=3)


def _format_totals(view: DiffView) -> list[Text]:
    before, after = view.schedule.totals_before, view.schedule.totals_after
    if before is None or after is None or before == after or len(view.diff.schedules) == 1:
        return []
    return view.page.wrap(Text(", ").join(_describe_totals(view.page, before, after)), indent=2, hang=2)


def _format_legend(view: DiffView) -> list[Text]:
    """Which range is which, where the names of the sides differ and something that is shown has them."""
    page, schedule = view.page, view.schedule
    if not schedule.is_pair or not (schedule.nodes or schedule.removed_ranges or schedule.added_ranges):
        return []
    moved = [f"{one} -> {other}" for one, other in schedule.renamed.items() if one != other]
    lines: list[Text] = []
    if moved:
        lines += page.wrap(page.join(("ranges renamed ", "dim"), ", ".join(moved)), indent=2, hang=2)
    for label, style, ranges, tick in (
        ("- ranges only before ", BEFORE, schedule.removed_ranges, "'"),
        ("+ ranges only after ", AFTER, schedule.added_ranges, ""),
    ):
        names = ", ".join(f"{item.name}{tick}={item.size} {item.axis_type}" for item in ranges)
        lines += page.wrap(page.join((label, style), names), indent=2, hang=2) if ranges else []
    return lines


def _format_same(view: DiffView) -> list[Text]:
    """The banner for what did not change."""
    schedule = view.schedule
    buffers = sum(item.status == "unchanged" for item in schedule.bufferizes)
    kernels = sum(item.status == "unchanged" for item in schedule.kernels)
    parts = [format_plural(len(schedule.same_nodes), "node")] if schedule.same_nodes else []
    parts += ["vmap_map"] if not schedule.vmap_map and schedule.is_pair else []
    parts += [f"{buffers} BUFFERIZE"] if buffers else []
    parts += [format_plural(kernels, "kernel")] if kernels else []
    if not parts:
        return []
    return [Text(), *view.page.wrap(view.page.text(f"= unchanged: {', '.join(parts)}", "dim"), hang=2)]


# *** values


def _format_values(view: DiffView) -> list[Text]:
    page, schedule = view.page, view.schedule
    shown = [item for item in schedule.outputs if page.show_all or item.status in ("different", "close")]
    if not shown:
        return []
    statuses = [item.status for item in schedule.outputs]
    kinds = [name for name in ("different", "close", "equal", "unknown") if name in statuses]
    title = ", ".join(f"{statuses.count(name)} {name}" for name in kinds)
    lines = page.wrap(page.join(("Values", "bold"), (f"  {title}", "dim")), hang=2)
    for item in shown if page.show_all else shown[:_MOST_OUTPUTS]:
        lines += page.wrap(_format_output(view, item), indent=2, hang=4)
    if len(shown) > _MOST_OUTPUTS and not page.show_all:
        lines += page.wrap(page.text(f"... {len(shown) - _MOST_OUTPUTS} more: --all shows them", "dim"), indent=2)
    return lines


def _format_output(view: DiffView, item: ValueDiff) -> Text:
    page = view.page
    style = ALERT if item.status == "different" else ""
    shape = view.change(*(format_shape(side) or "none" for side in (item.shape_before, item.shape_after)))
    dtype = view.change(item.dtype_before or "none", item.dtype_after or "none")
    head = page.join(f"output {item.number} ", shape, " ", dtype, ": ", (item.status, style))
    if item.first is not None:
        where = f"[{', '.join(map(str, item.index))}]" if item.index is not None else f"sample {item.first}"
        first = view.change(_format_value(item.value_before), _format_value(item.value_after))
        many = f"{item.different} of {item.sampled} sampled differ"
        return page.join(head, f" at {where}: ", first, f"; {many}{_format_errors_of(item)}")
    if item.status == "close":
        return page.join(head, f" within rtol {item.rtol:.1g}{_format_errors_of(item)}, {item.sampled} sampled")
    if item.status == "different" and item.sampled:
        return page.join(head, f" outside of the {item.sampled} sampled elements")
    return head


def _format_errors_of(item: ValueDiff) -> str:
    if item.max_absolute is None:
        return ""
    return f", by up to {_format_value(item.max_absolute)} ({_format_value(item.max_relative)} relative)"


def _format_value(value: float | str | None) -> str:
    return value if isinstance(value, str) else "none" if value is None else f"{value:.7g}"
