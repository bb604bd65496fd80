"""One schedule of a page, of one run or of two: what its sections look up, and what is printed around them."""

import re
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property

from rich.text import Text

from vmapdbg.diff.pairing import Renaming, find_opcodes
from vmapdbg.diff.result import CaptureDiff, ScheduleDiff, Totals, ValueDiff
from vmapdbg.model.capture import Bufferize, Capture, Finding, Schedule
from vmapdbg.model.schedule_index import ScheduleIndex, index_of
from vmapdbg.model.wording import format_known, format_plural, inflect
from vmapdbg.page import format as formats
from vmapdbg.page.sections import SECTIONS, load_section
from vmapdbg.page.sentences import Names, describe_left
from vmapdbg.page.text.layout import AFTER, ALERT, BEFORE, CHANGED, Page, Piece
from vmapdbg.page.view import Findings

VMAP = "magenta"
MARKS = {
    "unchanged": ("=", "dim"),
    "changed": ("~", CHANGED),
    "only-before": ("-", BEFORE),
    "only-after": ("+", AFTER),
    "fused-from": ("~", CHANGED),
    "split-into": ("~", CHANGED),
}
"""The mark of a status, and its colour."""
STATUS_STYLES = {"unchanged": "dim", "different": ALERT}
"""The style of a row or word with a status; most have none."""

_MOST_ALERTS = 3
_MOST_OUTPUTS = 8
_VMAP_NAME = re.compile(r"(?<!\w)rm\d\w*'?\*?")


class RunView:
    """What the schedules of a page share. `copies_source` prints source as it is, to be copied."""

    def __init__(self, page: Page, shown: Capture | CaptureDiff, *, copies_source: bool = False) -> None:
        self.page, self.copies_source = page, copies_source
        self.capture, self.diff = (shown, None) if isinstance(shown, Capture) else (None, shown)
        self.findings = Findings(shown.findings if isinstance(shown, Capture) else ())
        self.schedules = {schedule.index: schedule for schedule in self.capture.schedules} if self.capture else {}
        self.wholes = {(pair.before, pair.after): pair for pair in self.diff.schedules} if self.diff else {}
        self.printed_sources: dict[tuple[str, str], str] = {}
        """Source before and after -> the name of the first kernel that it was printed for."""


class ScheduleView:
    """A schedule as a pair, or a part of it; of one run both sides are equal. Names come from the `whole` schedule."""

    def __init__(self, run: RunView, pair: ScheduleDiff) -> None:
        self.run, self.pair = run, pair
        self.whole = run.wholes.get((pair.before, pair.after), pair)
        self.page, self.places, self.findings = run.page, run.page.places, run.findings
        self.is_pair = run.diff is not None

    # *** one run

    @property
    def schedule(self) -> Schedule:
        """The schedule of a page with one run."""
        return self.run.schedules[self.pair.index]

    @property
    def index(self) -> ScheduleIndex:
        return index_of(self.schedule)

    def notes_for(self, findings: Iterable[Finding]) -> list[Text]:
        """Returns findings as notes: code, then message, then what to try."""
        notes: list[Text] = []
        for found in findings:
            if found in self.findings.rest:
                self.findings.rest.remove(found)
            notes.append(self.page.finding(found, format_known("; try: {}", found.advice)))
        return notes

    # *** two runs

    @property
    def diff(self) -> CaptureDiff:
        assert self.run.diff is not None, "a page with one run has no diff"
        return self.run.diff

    @cached_property
    def renaming(self) -> Renaming:
        """The ranges and nodes of before in the names of after."""
        lone = (item.name for item in self.whole.removed_ranges)
        return Renaming(self.whole.renamed, self.whole.pair_nodes(), lone)

    @cached_property
    def made(self) -> dict[str, dict[int, Bufferize]]:
        """The BUFFERIZEs of each side by the id of their node."""
        every = self.whole.bufferizes
        sides = {"before": [item.before for item in every], "after": [item.after for item in every]}
        return {name: {made.node: made for made in side if made is not None} for name, side in sides.items()}

    @cached_property
    def side_names(self) -> dict[str, Names]:
        """Names for the sentences of `before`, as after has them, and of `after`."""
        return {"before": self._name_side("before", self.renaming), "after": self._name_side("after")}

    def _name_side(self, side: str, renaming: Renaming | None = None) -> Names:
        nodes = [getattr(item, side) for item in self.whole.nodes]
        nodes += [*getattr(self.whole, f"nodes_only_{side}"), *getattr(self.whole, f"folded_{side}")]
        ops = {getattr(item, side): item.op for item in self.whole.same_nodes} | {node.id: node.op for node in nodes}
        return Names(lambda node: ops.get(node, "?"), renaming)

    def line(self, before: str | None, after: str | None) -> Text:
        """Returns the user's line of both sides, once if it is the same line."""
        if before is None or after is None or self.diff.same_lines.get(before, before) == after:
            return self.page.text(self.places.format(after or before))
        return self.page.change(self.places.format(before), self.places.format(after))

    # *** both

    @property
    def buffer_op(self) -> str:
        """tinygrad's name for a BUFFERIZE, of both sides if they differ."""
        pair = self.pair
        sides = (pair.before, pair.buffer_op_before), (pair.after, pair.buffer_op_after)
        return "/".join(dict.fromkeys(op for index, op in sides if index is not None))

    def names(self, names: Iterable[str], *, ambient: Collection[str] = ()) -> Text:
        """Returns range names as `rm1*, r4`: vmap ranges coloured, the `ambient` ones with a `*`."""
        whole = self.page.text(formats.star_ambient(names, ambient))
        for match in _VMAP_NAME.finditer(whole.plain):
            whole.stylize(VMAP, *match.span())
        return whole

    def merge_names(self, before: Iterable[str], after: Iterable[str], ambient: Collection[str]) -> Text:
        """Returns the ranges of both sides in one tuple: `(+rm1*, r2, -r4')`. The names of before are translated."""
        left, right = list(map(self.renaming.translate, before)), list(after)
        parts: list[Text] = []
        for tag, i, end, j, end_after in find_opcodes(left, right):
            if tag == "equal":
                parts += [self.names([name], ambient=ambient) for name in right[j:end_after]]
                continue
            for sign, style, names in (("-", BEFORE, left[i:end]), ("+", AFTER, right[j:end_after])):
                starred = (sign + formats.star_ambient([name], ambient) for name in names)
                parts += (self.page.text(name, f"bold {style}") for name in starred)
        return self.page.join("(", Text(", ").join(parts), ")")


# *** a schedule


def print_schedule(view: ScheduleView, only: Collection[str] = SECTIONS) -> None:
    """Prints a schedule with the sections in `only`; of two runs what changed in it."""
    view.page.rule(*describe_schedule(view, "=="))
    if view.is_pair:
        before, after = view.pair.totals_before, view.pair.totals_after
        if before is not None and after is not None and before != after and len(view.diff.schedules) > 1:
            view.page.add(Text(", ").join(describe_totals(view.page, before, after)), indent=2)
        _print_ranges(view)
        _print_values(view)
    else:
        _print_alerts(view)
    for name in SECTIONS:
        if name in only:
            load_section(name)(view)
    if view.is_pair:
        _print_same(view)
    view.page.print()


def name_schedule(pair: ScheduleDiff) -> str:
    """Returns the index of a schedule, `3 -> 2` if it differs."""
    return formats.join_change(format_known("{}", pair.before), format_known("{}", pair.after))


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
    parts += [f" + {describe_copies(schedule.copies)}"] * bool(schedule.copies)
    return parts + [", from tinygrad's schedule cache"] * schedule.cached


def count_distinct(count: int, distinct: int, noun: str) -> str:
    """Returns `50 kernels (2 distinct)`, or `3 kernels` if each is another one."""
    every = format_plural(count, noun)
    return every if distinct == count else f"{every} ({distinct:,} distinct)"


def describe_copies(copies: int) -> str:
    """Returns `1 copy`, `no copies`."""
    return "no copies" if not copies else format_plural(copies, "copy", "copies")


def _print_alerts(view: ScheduleView) -> None:
    """Warns of a cached schedule that was made with other switches than now, and of lost ambient ranges."""
    if changed := view.schedule.not_in_key:
        then = ", ".join(f"{name}={values[0]}" for name, values in changed.items())
        now = ", ".join(f"{name}={values[1]}" for name, values in changed.items())
        it = inflect(len(changed), "it", "them")
        alert = f"!! made with {then}, now {now}: tinygrad's schedule cache ignores {it}"
        view.page.add((alert, ALERT), indent=2, hang=3)
    lost = [(item, item.after) for item in view.pair.bufferizes if item.lost_after and item.after is not None]
    for item, made in view.page.first(lost, _MOST_ALERTS, "!! and {} more, see BUFFERIZE below", style=ALERT):
        about = f"node {made.node} {item.op}: ambient {', '.join(item.lost_after)}"
        view.page.add((f"!! BUFFERIZE of {about} is NOT closed", ALERT), indent=2, hang=3)


# *** two runs


def describe_totals(page: Page, before: Totals, after: Totals) -> list[Text]:
    """Returns `kernels 3 -> 2`, `moved 1.0 MiB -> 0.8 MiB (0.80x)`: only what changed."""
    totals = formats.compare_totals(before, after)
    return [page.join(f"{label} ", (one, BEFORE), " -> ", (other, AFTER), ratio) for label, one, other, ratio in totals]


def _print_ranges(view: ScheduleView) -> None:
    if not view.pair.is_pair:
        return
    removed = [f"{item.name}'={item.size} {item.axis_type}" for item in view.pair.removed_ranges]
    added = [f"{item.name}={item.size} {item.axis_type}" for item in view.pair.added_ranges]
    for label, style, names in (("- ranges only before ", BEFORE, removed), ("+ ranges only after ", AFTER, added)):
        if names:
            view.page.add((label, style), ", ".join(names), indent=2)


def _print_same(view: ScheduleView) -> None:
    pair = view.pair
    nodes, buffers = len(pair.same_nodes), sum(item.status == "unchanged" for item in pair.bufferizes)
    kernels = sum(item.status == "unchanged" for item in pair.kernels)
    has_same_map = pair.is_pair and not pair.vmap_map and {view.diff.before.mode, view.diff.after.mode} != {"observe"}
    counts = [(nodes, format_plural(nodes, "node")), (has_same_map, "vmap_map")]
    counts += [(buffers, f"{buffers} {view.buffer_op}"), (kernels, format_plural(kernels, "kernel"))]
    parts = [words for count, words in counts if count]
    has_folded = bool(pair.folded_before or pair.folded_after)
    if parts or has_folded:
        view.page.add()
    if parts:
        view.page.add((f"= unchanged: {', '.join(parts)}", "dim"))
    if has_folded:
        many = f"{len(pair.folded_before)} -> {len(pair.folded_after)} nodes"
        what = "that only write a value in another way: broadcasts, permutations, stores of outputs"
        view.page.add((f"= not compared: {many} {what}", "dim"))


# *** values


def _print_values(view: ScheduleView) -> None:
    page, outputs = view.page, view.pair.outputs
    # say why a value is not compared, but not for all values of a file without any
    told = [item for item in outputs if item.status in ("different", "close") or item.left not in ("", "not-read")]
    shown = outputs if page.show_all else told
    if not shown:
        return
    statuses = [item.status for item in outputs]
    kinds = [name for name in ("different", "close", "equal", "unknown") if name in statuses]
    page.head("Values", ", ".join(f"{statuses.count(name)} {name}" for name in kinds))
    for item in page.first(shown, _MOST_OUTPUTS, "... {} more: --all shows them"):
        page.add(format_output(page, item), indent=2, hang=4)


def format_output(page: Page, item: ValueDiff) -> Text:
    """Returns how an output differs: `output 0 (4,) float: different at [0]: 1 -> 2; ...`."""
    if item.left:
        return page.text(f"output {item.number}: not compared ({describe_left(item.left)})")
    style = STATUS_STYLES.get(item.status, "")
    shapes = [formats.format_shape(shape) or "none" for shape in (item.shape_before, item.shape_after)]
    dtype = page.change(item.dtype_before or "none", item.dtype_after or "none")
    output = page.join(f"output {item.number} ", page.change(*shapes), " ", dtype, ": ", (item.status, style))
    return page.join(output, *_describe_difference(page, item))


def _describe_difference(page: Page, item: ValueDiff) -> Iterator[Piece]:
    errors = ""
    if item.max_absolute is not None:
        errors = f", by up to {_format_value(item.max_absolute)} ({_format_value(item.max_relative)} relative)"
    if item.first is not None:
        where = f"sample {item.first}" if item.index is None else f"[{', '.join(map(str, item.index))}]"
        yield f" at {where}: "
        yield page.change(_format_value(item.value_before), _format_value(item.value_after))
        yield f"; {item.different} of {item.sampled} sampled differ{errors}"
    elif item.status == "close":
        yield f" within rtol {item.rtol:.1g}{errors}, {item.sampled} sampled"
    elif item.status == "different" and item.sampled:
        yield f" outside of the {item.sampled} sampled elements"


def _format_value(value: float | str | None) -> str:
    return "none" if value is None else value if isinstance(value, str) else f"{value:.7g}"
