"""Prints a diff on a terminal or into a pipe: the verdict, the two sides, then each schedule that changed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from vmapdbg.diff import CaptureDiff, ScheduleDiff, ValueDiff
from vmapdbg.diff.pairing import find_ranges
from vmapdbg.model.wording import format_known, format_plural, inflect
from vmapdbg.page.format import Places, format_ids, format_shape
from vmapdbg.page.overview.diff_selection import SelectedChange
from vmapdbg.page.text.diff_bufferizes import format_bufferizes
from vmapdbg.page.text.diff_head import (
    describe_totals,
    format_errors,
    format_findings,
    format_printed,
    format_sides,
    format_verdict,
)
from vmapdbg.page.text.diff_kernels import format_kernels
from vmapdbg.page.text.diff_nodes import format_nodes, format_vmap_map
from vmapdbg.page.text.diff_source import DiffListing
from vmapdbg.page.text.diff_view import AFTER, BEFORE, STATUS_STYLES, DiffView, join_change
from vmapdbg.page.text.layout import Page, Part

_MOST_OUTPUTS = 8
_BRIEF_SIGNS = {"unchanged": ("=", "dim"), "only before": ("-", BEFORE), "only after": ("+", AFTER)}


def print_diff(diff: CaptureDiff, console: Console, *, show_all: bool = False, unified: bool = False) -> None:
    """Prints a diff: first the verdict in one line, then only what changed.

    `show_all` prints what is the same, too, and folds nothing. Changed source stands side by side from 100 columns
    on, below that, or where one side has none, in one column; with `unified` as hunks.
    """
    page = Page(console, show_all=show_all)
    places = Places(collect_places(diff), diff.after.snippet)
    print_head(page, diff, places)
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


def print_selected(
    diff: CaptureDiff,
    selected: Sequence[SelectedChange],
    console: Console,
    *,
    show_all: bool = False,
    unified: bool = False,
) -> None:
    """Prints a part of a diff, in the same form."""
    page = Page(console, show_all=show_all)
    places = Places(collect_places(diff), diff.after.snippet)
    print_head(page, diff, places)
    listing = DiffListing(unified=unified)
    for item in selected:
        _print_schedule(DiffView(diff, item.part, page, places, item.whole), listing)


def print_verdict(diff: CaptureDiff, console: Console) -> None:
    """Prints the verdict, the sides and the findings alone."""
    print_head(Page(console), diff, Places(collect_places(diff), diff.after.snippet))


def print_head(page: Page, diff: CaptureDiff, places: Places) -> None:
    """Prints the verdict, the sides, and what they printed."""
    page.show(page.wrap(format_verdict(page, diff), hang=2))
    page.show([*format_sides(page, diff), *format_errors(page, diff, places), *format_printed(page, diff)])
    page.show(format_findings(page, diff, places))


def collect_places(diff: CaptureDiff) -> Iterator[str | None]:
    """Yields every line that a diff names."""
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


def _find_brief(diff: CaptureDiff, *, show_all: bool) -> list[tuple[ScheduleDiff, str]]:
    """Pairs each schedule with why it gets only one line; an empty reason: it does not."""
    if show_all:
        return [(schedule, "") for schedule in diff.schedules]
    seen: dict[str, ScheduleDiff] = {}
    found: list[tuple[ScheduleDiff, str]] = []
    for schedule in diff.schedules:
        reason = ""
        if schedule.is_empty:
            reason = "unchanged"
        elif not schedule.is_pair:
            reason = _name_only_side(schedule)
        else:
            # layers of a network change alike: all but where they stand and what came out
            nameless = replace(schedule, before=0, after=0, line_before=None, line_after=None, outputs=())
            first = seen.setdefault(repr(nameless), schedule)
            if first is not schedule:
                reason = f"the changes of schedule {_format_index(first)} again"
        found.append((schedule, reason))
    return found


def _name_only_side(schedule: ScheduleDiff) -> str:
    return "only before" if schedule.after is None else "only after"


def _format_index(schedule: ScheduleDiff) -> str:
    return join_change(format_known("{}", schedule.before), format_known("{}", schedule.after))


def _format_brief(page: Page, waiting: Iterable[tuple[ScheduleDiff, str]]) -> list[Text]:
    groups: dict[str, list[ScheduleDiff]] = {}
    for schedule, reason in waiting:
        groups.setdefault(reason, []).append(schedule)
    lines: list[Text] = []
    for reason, schedules in groups.items():
        totals = [item for schedule in schedules if (item := schedule.totals_after or schedule.totals_before)]
        kernels, copies = sum(item.kernels for item in totals), sum(item.copies for item in totals)
        held = format_plural(kernels, "kernel")
        if copies:
            held += f" + {format_plural(copies, 'copy', 'copies')}"
        sign, style = _BRIEF_SIGNS.get(reason, ("~", "dim"))
        name = (f"{sign} {_name_schedules(schedules)}", style)
        lines += page.wrap(name, f"  {reason}", (f"  ({held})", "dim"), hang=2)
    if not lines:
        return []
    return [Text(), *lines]


def _name_schedules(schedules: Sequence[ScheduleDiff]) -> str:
    noun = inflect(len(schedules), "schedule")
    if any(item.is_pair and item.before != item.after for item in schedules):
        return f"{noun} {', '.join(map(_format_index, schedules))}"
    return f"{noun} {format_ids(item.index for item in schedules)}"


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
        _format_same,
    ):
        if lines := section(view):
            page.show([Text(), *lines])


def _format_heading(view: DiffView) -> list[Text]:
    page, schedule = view.page, view.schedule
    line = view.line(schedule.line_before, schedule.line_after)
    parts: list[Part] = [(f"== schedule {_format_index(schedule)}", "bold")]
    if line.plain:
        parts += ["  ", line]
    if not schedule.is_pair:
        parts.append((f"  {_name_only_side(schedule)}", "bold"))
    return page.rule(*parts)


def _format_totals(view: DiffView) -> list[Text]:
    before, after = view.schedule.totals_before, view.schedule.totals_after
    if before is None or after is None or before == after or len(view.diff.schedules) == 1:
        return []
    return view.page.wrap(Text(", ").join(describe_totals(view.page, before, after)), indent=2, hang=2)


def _format_legend(view: DiffView) -> list[Text]:
    """Which range is which, where the names of the sides differ and something that is shown has them."""
    page, schedule = view.page, view.schedule
    if not schedule.is_pair or not (schedule.nodes or schedule.removed_ranges or schedule.added_ranges):
        return []
    shown = _find_shown_ranges(schedule, is_one_snippet=view.diff.same_snippet)
    moved = [f"{one} -> {other}" for one, other in schedule.renamed.items() if one != other and one in shown]
    lines: list[Text] = []
    if moved:
        lines += page.wrap(("ranges renamed ", "dim"), ", ".join(moved), indent=2, hang=2)
    for label, style, ranges, tick in (
        ("- ranges only before ", BEFORE, schedule.removed_ranges, "'"),
        ("+ ranges only after ", AFTER, schedule.added_ranges, ""),
    ):
        names = ", ".join(f"{item.name}{tick}={item.size} {item.axis_type}" for item in ranges)
        if names:
            lines += page.wrap((label, style), names, indent=2, hang=2)
    return lines


def _find_shown_ranges(schedule: ScheduleDiff, *, is_one_snippet: bool) -> Container[str]:
    """Returns the ranges of before that a legend is for: all of them, or of two tinygrads or two snippets, where a
    realize point more gives all others another number, those that something has which changed."""
    if not schedule.folded_before and is_one_snippet:
        return schedule.renamed
    nodes = [*(item.before for item in schedule.nodes), *schedule.nodes_only_before]
    texts = [name for node in nodes for name in (*(node.in_ranges or ()), *(node.out_ranges or ()))]
    for item in schedule.bufferizes:
        if item.before is not None and item.status != "unchanged":
            texts += item.before.closed_ranges
    return {name for text in texts for name in find_ranges(text)}


def _format_same(view: DiffView) -> list[Text]:
    """The banner for what did not change."""
    schedule = view.schedule
    buffers = sum(item.status == "unchanged" for item in schedule.bufferizes)
    kernels = sum(item.status == "unchanged" for item in schedule.kernels)
    parts: list[str] = []
    if schedule.same_nodes:
        parts.append(format_plural(len(schedule.same_nodes), "node"))
    modes = {view.diff.before.mode, view.diff.after.mode}
    if schedule.is_pair and not schedule.vmap_map and modes != {"observe"}:
        parts.append("vmap_map")
    if buffers:
        parts.append(f"{buffers} {view.buffer_op}")
    if kernels:
        parts.append(format_plural(kernels, "kernel"))
    lines: list[Text] = []
    if parts:
        lines += view.page.wrap((f"= unchanged: {', '.join(parts)}", "dim"), hang=2)
    if schedule.folded_before or schedule.folded_after:
        many = f"{len(schedule.folded_before)} -> {len(schedule.folded_after)} nodes"
        what = "that only write a value in another way: broadcasts, permutations, stores of outputs"
        lines += view.page.wrap((f"= not compared: {many} {what}", "dim"), hang=2)
    return lines


# *** values


def _format_values(view: DiffView) -> list[Text]:
    page, schedule = view.page, view.schedule
    shown = [item for item in schedule.outputs if page.show_all or item.status in ("different", "close")]
    if not shown:
        return []
    statuses = [item.status for item in schedule.outputs]
    kinds = [name for name in ("different", "close", "equal", "unknown") if name in statuses]
    title = ", ".join(f"{statuses.count(name)} {name}" for name in kinds)
    lines = page.head("Values", title)
    first = page.choose_first(shown, _MOST_OUTPUTS)
    for item in first:
        lines += page.wrap(format_output(view, item), indent=2, hang=4)
    if len(first) < len(shown):
        lines += page.wrap((f"... {len(shown) - len(first)} more: --all shows them", "dim"), indent=2)
    return lines


def format_output(view: DiffView, item: ValueDiff) -> Text:
    """Returns how an output differs: `output 0 (4,) float: different at [0]: 1 -> 2; ...`."""
    page = view.page
    style = STATUS_STYLES.get(item.status, "")
    shape = view.change(format_shape(item.shape_before) or "none", format_shape(item.shape_after) or "none")
    dtype = view.change(item.dtype_before or "none", item.dtype_after or "none")
    head = page.join(f"output {item.number} ", shape, " ", dtype, ": ", (item.status, style))
    if item.first is not None:
        where = f"sample {item.first}"
        if item.index is not None:
            where = f"[{', '.join(map(str, item.index))}]"
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
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    return f"{value:.7g}"
