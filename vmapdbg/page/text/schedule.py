"""Prints one schedule, or one pair of schedules: its heading, what is said about the whole of it, and its sections."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator

from rich.text import Text

from vmapdbg.diff import ScheduleDiff, Totals, ValueDiff
from vmapdbg.diff.pairing import find_ranges
from vmapdbg.model.wording import format_known, format_plural, inflect
from vmapdbg.page.format import format_bytes, format_ratio, format_seconds, format_shape, join_change
from vmapdbg.page.sections import SECTIONS, load_section
from vmapdbg.page.text.buffers import print_alerts
from vmapdbg.page.text.kernels import describe_copies
from vmapdbg.page.text.layout import AFTER, ALERT, BEFORE, Page, Piece
from vmapdbg.page.text.view import STATUS_STYLES, ScheduleView, format_short

_MOST_OUTPUTS = 8


def print_schedule(view: ScheduleView, only: Collection[str] = SECTIONS) -> None:
    """Prints a schedule with the sections in `only`; of two runs what changed in it."""
    view.page.rule(*describe_schedule(view, "=="))
    if view.is_pair:
        _print_totals(view)
        _print_ranges(view)
        _print_values(view)
    else:
        _print_other_switches(view)
        print_alerts(view)
    for name in SECTIONS:
        if name in only:
            load_section(name)(view)
    if view.is_pair:
        _print_same(view)
    view.page.print()


def name_schedule(pair: ScheduleDiff) -> str:
    """Returns the index of a schedule, `3 -> 2` if it differs."""
    return join_change(format_known("{}", pair.before), format_known("{}", pair.after))


def name_only_side(pair: ScheduleDiff) -> str:
    """Returns which side has a schedule that has no partner."""
    return "only before" if pair.after is None else "only after"


def describe_schedule(view: ScheduleView, sign: str) -> list[Piece]:
    """Returns `== schedule 3`, its line, and its kernels, copies and cache, or that only one side has it."""
    pair = view.pair
    parts: list[Piece] = [(f"{sign} schedule {name_schedule(pair)}", "bold")]
    if view.is_pair:
        line = view.line(pair.line_before, pair.line_after)
        if line.plain:
            parts += ["  ", line]
        if not pair.is_pair:
            parts.append((f"  {name_only_side(pair)}", "bold"))
        return parts
    schedule = view.schedule
    parts += [view.places.format(schedule.line, "  {}"), f"  {format_plural(len(schedule.kernels), 'kernel')}"]
    if schedule.copies:
        parts.append(f" + {describe_copies(schedule)}")
    if schedule.cached:
        parts.append(", from tinygrad's schedule cache")
    return parts


def _print_other_switches(view: ScheduleView) -> None:
    """A warning if a cached schedule was made with other switches than the current ones."""
    changed = view.schedule.not_in_key
    if not changed:
        return
    then, now = (", ".join(f"{name}={values[side]}" for name, values in changed.items()) for side in (0, 1))
    it = inflect(len(changed), "it", "them")
    alert = f"!! made with {then}, now {now}: tinygrad's schedule cache ignores {it}"
    view.page.add((alert, ALERT), indent=2, hang=3)


# *** two runs


def describe_totals(page: Page, before: Totals, after: Totals) -> list[Text]:
    """Returns `kernels 3 -> 2`, `moved 1.0 MiB -> 0.8 MiB (0.80x)`: only what changed."""
    parts: list[Text] = []
    for label, name, write, has_ratio in (
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
            ratio = format_ratio(one, other) if has_ratio else ""
            parts.append(page.join(f"{label} ", (write(one), BEFORE), " -> ", (write(other), AFTER), ratio))
    return parts


def describe_time(page: Page, before: Totals, after: Totals) -> list[Text]:
    """Returns `time in kernels 1.2 ms -> 0.8 ms (0.67x)`, nothing if a side was not timed."""
    if not before.seconds or not after.seconds:
        return []
    one, other = format_seconds(before.seconds), format_seconds(after.seconds)
    ratio = format_ratio(before.seconds, after.seconds)
    return [page.join("time in kernels ", (one, BEFORE), " -> ", (other, AFTER), ratio)]


def _print_totals(view: ScheduleView) -> None:
    before, after = view.pair.totals_before, view.pair.totals_after
    if before is not None and after is not None and before != after and len(view.diff.schedules) > 1:
        view.page.add(Text(", ").join(describe_totals(view.page, before, after)), indent=2)


def _print_ranges(view: ScheduleView) -> None:
    """Names the ranges that the sides call differently, if something that is shown has them."""
    page, pair = view.page, view.pair
    if not pair.is_pair or not (pair.nodes or pair.removed_ranges or pair.added_ranges):
        return
    shown = _list_shown_ranges(pair, is_one_snippet=view.diff.same_snippet)
    moved = [f"{one} -> {other}" for one, other in pair.renamed.items() if one != other and one in shown]
    removed = [f"{item.name}'={item.size} {item.axis_type}" for item in pair.removed_ranges]
    added = [f"{item.name}={item.size} {item.axis_type}" for item in pair.added_ranges]
    for label, style, names in (
        ("ranges renamed ", "dim", moved),
        ("- ranges only before ", BEFORE, removed),
        ("+ ranges only after ", AFTER, added),
    ):
        if names:
            page.add((label, style), ", ".join(names), indent=2)


def _list_shown_ranges(pair: ScheduleDiff, *, is_one_snippet: bool) -> Container[str]:
    """Returns the ranges of before for the legend: all, or with two tinygrads or two snippets only those of nodes that
    changed, because one more realize point gives all later ranges another number."""
    if not pair.folded_before and is_one_snippet:
        return pair.renamed
    nodes = [*(item.before for item in pair.nodes), *pair.nodes_only_before]
    texts = [name for node in nodes for name in (*(node.in_ranges or ()), *(node.out_ranges or ()))]
    for item in pair.bufferizes:
        if item.before is not None and item.status != "unchanged":
            texts += item.before.closed_ranges
    return {name for text in texts for name in find_ranges(text)}


def _print_same(view: ScheduleView) -> None:
    """Says what did not change."""
    pair = view.pair
    buffers = sum(item.status == "unchanged" for item in pair.bufferizes)
    kernels = sum(item.status == "unchanged" for item in pair.kernels)
    parts: list[str] = []
    if pair.same_nodes:
        parts.append(format_plural(len(pair.same_nodes), "node"))
    modes = {view.diff.before.mode, view.diff.after.mode}
    if pair.is_pair and not pair.vmap_map and modes != {"observe"}:
        parts.append("vmap_map")
    if buffers:
        parts.append(f"{buffers} {view.buffer_op}")
    if kernels:
        parts.append(format_plural(kernels, "kernel"))
    sentences: list[str] = []
    if parts:
        sentences.append(f"= unchanged: {', '.join(parts)}")
    if pair.folded_before or pair.folded_after:
        many = f"{len(pair.folded_before)} -> {len(pair.folded_after)} nodes"
        what = "that only write a value in another way: broadcasts, permutations, stores of outputs"
        sentences.append(f"= not compared: {many} {what}")
    if sentences:
        view.page.add()
    for sentence in sentences:
        view.page.add((sentence, "dim"))


# *** values


def _print_values(view: ScheduleView) -> None:
    page, outputs = view.page, view.pair.outputs
    shown = [item for item in outputs if page.show_all or item.status in ("different", "close")]
    if not shown:
        return
    statuses = [item.status for item in outputs]
    kinds = [name for name in ("different", "close", "equal", "unknown") if name in statuses]
    page.head("Values", ", ".join(f"{statuses.count(name)} {name}" for name in kinds))
    for item in page.first(shown, _MOST_OUTPUTS, "... {} more: --all shows them"):
        page.add(format_output(page, item), indent=2, hang=4)


def format_output(page: Page, item: ValueDiff) -> Text:
    """Returns how an output differs: `output 0 (4,) float: different at [0]: 1 -> 2; ...`."""
    if item.dtype_before is None or item.dtype_after is None:
        return page.text(f"output {item.number}: not compared (it exists on one side only)")
    style = STATUS_STYLES.get(item.status, "")
    shapes = [format_shape(shape) or "none" for shape in (item.shape_before, item.shape_after)]
    shape, dtype = page.change(*shapes), page.change(item.dtype_before, item.dtype_after)
    difference = _describe_difference(page, item)
    return page.join(f"output {item.number} ", shape, " ", dtype, ": ", (item.status, style), *difference)


def _describe_difference(page: Page, item: ValueDiff) -> Iterator[Piece]:
    errors = ""
    if item.max_absolute is not None:
        errors = f", by up to {_format_value(item.max_absolute)} ({_format_value(item.max_relative)} relative)"
    if item.first is not None:
        where = f"sample {item.first}"
        if item.index is not None:
            where = f"[{', '.join(map(str, item.index))}]"
        yield f" at {where}: "
        yield page.change(_format_value(item.value_before), _format_value(item.value_after))
        yield f"; {item.different} of {item.sampled} sampled differ{errors}"
    elif item.status == "close":
        yield f" within rtol {item.rtol:.1g}{errors}, {item.sampled} sampled"
    elif item.status == "different" and item.sampled:
        yield f" outside of the {item.sampled} sampled elements"


def _format_value(value: float | str | None) -> str:
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    return f"{value:.7g}"
