"""The memory of a run, on one page: its peak, the lifetimes of the largest buffers, what is live, and advice."""

from rich.text import Text

from vmapdbg.model.capture import Capture, LaunchPlace, LiveBuffer, Memory, MemoryAdvice, PartPeak, Schedule
from vmapdbg.model.schedule_index import group_equal, index_of, name_node
from vmapdbg.model.wording import format_known, format_plural, join_first
from vmapdbg.page.format import Places, format_bytes, format_share, join_change, round_count
from vmapdbg.page.lifetimes import Picture, name_buffer
from vmapdbg.page.sentences import Names, say_briefly
from vmapdbg.page.text.layout import Cell, Page, Piece, Row
from vmapdbg.page.view import View

_MOST_ROWS, _MOST_PARTS, _MOST_SHARES = 12, 6, 3
_KINDS = {"copy": "a copy of data to the device", "data": "data of Python", "empty": "no launch writes it"}
_CALLS = ("the first call", "the call that TinyJit captures", "a replay")


def add_memory(capture: Capture, page: Page, *, draws: bool = True) -> None:
    """Adds the page of the memory that a run had; without the lifetime picture if it is drawn elsewhere."""
    memory = capture.memory
    if memory is None:
        left = next((line for line in capture.missing if "memory" in line), "tinygrad allocated none")
        page.add(f"memory: {'not watched; run it with --memory' if capture.peak_bytes is None else left}")
        return
    printer = _Printer(capture, memory, page)
    printer.add_peak()
    if draws:
        picture = Picture(memory, page.places)
        about = f"launches {picture.first:,} to {picture.last:,}; = in use, - kept before or after, ^ the peak"
        page.head("Lifetimes", about)
        page.lines += [page.text(f"  {line}") for line in picture.draw_text(page.width - 2)]
    printer.add_live()
    if memory.advice:
        page.head("Advice", "the peak that results; predicted from these lifetimes, not tried")
    for advice in memory.advice:
        saved = format_share(memory.peak - advice.peak, memory.peak)
        peak = (f"{format_bytes(advice.peak):>9}", "bold")
        page.add(peak, (f" -{saved:<4}", "dim"), _say_advice(advice, page.places), indent=2, hang=15)


def add_memory_line(view: View, page: Page) -> None:
    """Adds a line to an overview: the peak, or what is known of it without watching."""
    before, after = view.before.peak_bytes, view.after.peak_bytes
    made_by = ((made, schedule) for schedule in view.after.schedules for made in schedule.bufferizes)
    kept = [(made, schedule) for made, schedule in made_by if made.holds_memory]
    what: Piece
    if after is not None and before is not None:
        what = page.compare(before, after, format_bytes)
        about = " at the peak" if view.is_pair else " at the peak; show --memory says what it is made of"
    elif view.is_pair or not kept:
        return
    else:
        # the run has at least the memory of its largest buffer
        made, schedule = max(kept, key=lambda one: one[0].bytes)
        node = index_of(schedule).node(made.node)
        what = f"at least {format_bytes(made.bytes)}"
        about = f", a buffer{page.places.format(node and node.line, ' of {}')}; --memory measures the peak"
    page.add(("memory: ", "dim"), what, (about, "dim"), indent=2)


class _Printer:
    def __init__(self, capture: Capture, memory: Memory, page: Page) -> None:
        self.memory, self.page, self.places = memory, page, page.places
        self.schedules: dict[int | None, Schedule] = {schedule.index: schedule for schedule in capture.schedules}

    def name_launch(self, place: LaunchPlace | None) -> str:
        """Returns schedule and kernel of a launch: `6#274`, `6 copy`."""
        if place is None or place.schedule is None:
            return ""
        return f"{place.schedule} copy" if place.kernel is None else f"{place.schedule}#{place.kernel}"

    def add_peak(self) -> None:
        memory, page = self.memory, self.page
        kernel = format_known(", kernel {}", self.name_launch(memory.at) or None)
        at = f"launch {memory.at.launch:,} of {memory.launches:,}{kernel}"
        line = self.places.format(memory.line, ", {}") or ", in what the snippet leaves lazy"
        page.head("Memory", Text.assemble((format_bytes(memory.peak), "bold"), f" at the peak, {at}{line}"))
        page.table(map(self.format_part, memory.parts), _MOST_PARTS, "... {} more with lower peaks")

    def format_part(self, part: PartPeak) -> Row:
        what = f"schedule {part.schedule}" if part.call is None else f"{part.name}: {_CALLS[part.call]}"
        return Row(
            Cell("peak", format_bytes(part.bytes), right=True, comfort=9),
            Cell("of all", format_share(part.bytes, self.memory.peak), right=True, comfort=6),
            Cell("times", f"{part.times:,}", right=True, comfort=5),
            Cell("while this runs", what, comfort=24, most=60),
            Cell("line", (self.places.format(part.line), "dim"), comfort=16, most=40),
        )

    def add_live(self) -> None:
        memory = self.memory
        groups = group_equal(memory.live, lambda one: (one.name or one.value.line, one.dtype, self.explain(one)))
        groups.sort(key=lambda group: -sum(one.value.bytes for one in group))
        count = len(memory.live) + memory.rest
        self.page.head("Live at the peak", f"{format_plural(count, 'buffer')}; equal ones are one row")
        self.page.table(map(self.format_group, groups[:_MOST_ROWS]))
        rest = [one for group in groups[_MOST_ROWS:] for one in group]
        if count := len(rest) + memory.rest:
            size = sum(one.value.bytes for one in rest) + memory.rest_bytes
            self.page.add(f"{format_bytes(size)} in {format_plural(count, 'smaller buffer')}", indent=2)
        if memory.unused:
            self.page.add(f"{format_bytes(memory.unused)} of the planner's memory that no value uses then", indent=2)

    def format_group(self, group: list[LiveBuffer]) -> Row:
        first, size = group[0], sum(one.value.bytes for one in group)
        makers = [(one.value.schedule, one.value.node) for one in group]
        nodes = [name_node(schedule, node) for schedule, node in makers if schedule is not None and node is not None]
        uses = join_change(self.name_launch(first.first), self.name_launch(first.last))
        shares = first.shares[:_MOST_SHARES]
        names = [f"{format_bytes(v.bytes)} of {self.places.format(v.line) or 'an unknown line'}" for v in shares]
        names += [f"and {first.others - len(shares)} more"] if first.others > len(shares) else []
        others = f"in the same memory at other times: {', '.join(names)}" if names else ""
        return Row(
            Cell("bytes", format_bytes(size), right=True, comfort=9),
            Cell("of all", format_share(size, self.memory.peak), right=True, comfort=6),
            Cell("buffers", f"{len(group):,}", right=True, comfort=7),
            Cell("what", (name_buffer(first, self.places), "bold"), comfort=20, most=44),
            Cell("dtype", first.dtype, comfort=5, leaves=2),
            Cell("node", join_first(nodes, 1), comfort=14, leaves=1),
            Cell("kernels", uses, comfort=14, leaves=3, label="used by kernels"),
            notes=[(self.explain(first), "dim"), (others, "dim")],
        )

    def explain(self, buffer: LiveBuffer) -> str:
        """Returns the reason why a buffer exists."""
        line, value = self.places.format(buffer.value.line), buffer.value
        if buffer.name and line:
            return f"the snippet holds it; made at {line}"
        if buffer.kind != "kernel":
            return _KINDS[buffer.kind]
        schedule = self.schedules.get(value.schedule)
        node = None if schedule is None or value.node is None else index_of(schedule).node(value.node)
        if schedule is None or node is None:
            return "the schedule that computes it is not known"
        names = Names(index_of(schedule).op)
        why = "written in place, or by no BUFFERIZE" if node.realized is None else say_briefly(node.realized, names)
        return f"{node.method or node.op}: {why}"


def _say_advice(advice: MemoryAdvice, places: Places) -> str:
    line = places.format(advice.line)
    these = f"{format_plural(advice.buffers, 'buffer')} of {line} ({format_bytes(advice.bytes)})"
    if advice.kind == "half":
        return f"keep {these} in half precision"
    if advice.kind == "recompute":
        return f"compute {these} again for the next reader: {round_count(advice.ops)} ops more"
    if line:
        return f"del {advice.name} after {line}: no launch uses it again"
    what = f"{format_plural(advice.buffers, 'buffer')} ({format_bytes(advice.bytes)}) after the last use"
    held = format_known("; {} are lazy and hold them: set them to None before the step runs", advice.name or None)
    return f"free {what}{held}"
