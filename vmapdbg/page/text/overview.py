"""The overview of a long run, or of a long diff, on one page: what makes up most of it, and where to look."""

import itertools
from collections.abc import Iterable, Sequence

from rich.text import Text

from vmapdbg.lint import RULES
from vmapdbg.model.capture import Bufferize, Device, Kernel, MarkTime, Node
from vmapdbg.model.schedule_index import find_distinct, group_equal, name_node
from vmapdbg.model.wording import count_shown, format_plural, join_first
from vmapdbg.page import overview
from vmapdbg.page.format import (
    format_bytes,
    format_count,
    format_rate,
    format_redundancy,
    format_seconds,
    format_share,
    round_count,
)
from vmapdbg.page.functions import FunctionRow, count_functions
from vmapdbg.page.speed import describe_beam, find_noise, list_optimizations, rate_kernel
from vmapdbg.page.text.kernels import list_parts, name_change
from vmapdbg.page.text.layout import ALERT, Cell, Page, Piece, Row
from vmapdbg.page.text.memory import add_memory_line
from vmapdbg.page.text.view import MARKS, count_distinct, describe_totals, format_output
from vmapdbg.page.view import View

_MOST_ROWS, _MOST_PROGRAMS = 10, 5  # kernels of two runs, and of one run, which fills a page
_MOST_RULES, _MOST_REASONS = 8, 4  # so with what asks for buffers
_MOST_SHARES, _MOST_OF_PART, _MOST_FUNCTIONS = 8, 7, 24
_MOST_PLACES, _MOST_NAMES, _MOST_OUTPUTS = 3, 4, 3
_LEAST_SHARE = 0.01
_PARTS = {
    "importing": "importing tinygrad",
    "python": "Python",
    "scheduling": "scheduling (and recording)",
    "launching": "launching and waiting",
    "kernels": "in kernels",
}


def add_overview(view: View, page: Page, hidden: str) -> None:
    """Adds the overview to the page; `hidden` says how to see the rest, and is added last."""
    printer = Overview(view, page)
    if view.is_pair:
        printer.add_changed_schedules()
    else:
        printer.add_totals()
    add_memory_line(view, page)
    if not view.is_pair:
        printer.add_timing()
        printer.add_shares()
        printer.add_functions()
    printer.add_values()
    printer.add_kernels(_MOST_ROWS if view.is_pair else _MOST_PROGRAMS)
    if view.is_pair:
        printer.add_lines()
    printer.add_rules(_MOST_RULES if view.is_pair else _MOST_REASONS)
    printer.add_findings()
    page.add((hidden, "dim"), gap=True)


def add_part(view: View, page: Page, asked: str) -> None:
    """Adds a page on a line or a kernel of one run: kernels, buffers kept, most costly first; source of one program."""
    printer = Overview(view, page)
    kernels, ops = sum(row.after.kernels for row in printer.kernels), sum(row.after.ops for row in printer.kernels)
    share = format_share(ops, printer.total.ops) or "0%"
    every = format_plural(printer.total.kernels, "kernel")
    page.head(asked, Text(f"{kernels:,} of {every}, {round_count(ops)} ops executed, {share} of all"))
    printer.add_kernels(_MOST_OF_PART)
    printer.add_buffers()


class Overview:
    """Adds the parts of an overview to a page."""

    def __init__(self, view: View, page: Page) -> None:
        self.view, self.page, self.places = view, page, page.places
        self.kernels = overview.group_kernels(view)
        self.total = overview.sum_kernels(view.after)

    def add_totals(self) -> None:
        capture, total = self.view.after, self.total
        parts = [
            count_distinct(len(capture.schedules), len(find_distinct(capture)), "schedule"),
            count_distinct(total.kernels, len(self.kernels), "kernel"),
            f"{round_count(total.ops)} ops executed",
            f"{format_bytes(total.bytes)} moved",
        ]
        parts += [f"{format_seconds(total.seconds)} in kernels"] * (total.seconds > 0)
        self.page.head("Overview", Text(", ".join(parts)))

    def add_timing(self) -> None:
        """Adds what the wall time goes into, what the device reaches, and the phases that the user marks."""
        page, capture = self.page, self.view.after
        timing, device, noise = capture.timing, capture.device, find_noise(capture)
        facts: dict[str, Piece] = {}
        if timing is not None:
            parts = sorted(timing.parts.items(), key=lambda part: -part[1])
            spent = [f"{_PARTS.get(name, name)} {format_seconds(seconds)}" for name, seconds in parts if seconds > 0]
            facts["time"] = f"{format_seconds(timing.seconds)}: {', '.join(spent)}"
        if device is not None:
            reached = f"{device.name} reaches {format_rate(device.ops, 'op')} and {format_rate(device.bytes, 'B')}"
            facts["device"] = f"{reached}; a launch takes {format_seconds(device.launch)}"
        if noise is not None:
            facts["noise"] = f"equal launches differ by {noise:.0%}: other work disturbs the times", "bold yellow"
        for name, fact in facts.items():
            page.add((f"{name:8}", "dim"), fact, indent=2, hang=10)
        if timing is not None and timing.marks:
            page.head("Marks", "phases that the program marks, and calls of a TinyJit")
            page.table(map(_format_mark, timing.marks))

    def add_shares(self) -> None:
        """Adds the shares of phases and of methods of Tensor in one run, and of what has no line of the user."""
        of = "time" if self.total.seconds else "ops"
        shares: dict[str, str] = {}
        kinds: dict[str, overview.By] = {"phases": "phase", "methods": "method"}
        for name, by in kinds.items():
            rows = overview.count_costs(self.view, by)
            said = [f"{row.name} {self.share_of(row.after)}" for row in rows]
            if len(rows) > 1 or by == "method":
                shares[name] = join_first(said, _MOST_SHARES)
        lost = overview.sum_kernels(self.view.after, without_line=True)
        if lost.kernels:
            shares["no line"] = self.share_of(lost)
        for name, share in shares.items():
            if share:
                self.page.add((f"{name:8}", "dim"), f"share of the {of}: {share}", indent=2, hang=10)

    def share_of(self, cost: overview.Cost) -> str:
        """Returns the share of the time, or of the ops if nothing was timed."""
        if self.total.seconds:
            return format_share(cost.seconds, self.total.seconds)
        return format_share(cost.ops, self.total.ops) or "0%"

    def add_functions(self) -> None:
        """Adds the tree of the user's functions."""
        rows = [each for row in count_functions(self.view.after, _LEAST_SHARE, self.view.sort) for each in row.walk()]
        if len(rows) < 2:
            return
        about = f"with all that they call; a kernel counts once; rows below {_LEAST_SHARE:.0%} are left out"
        self.page.head("Functions", about)
        self.page.table(itertools.starmap(self.format_function, rows), _MOST_FUNCTIONS, "... {} more", noun="row")

    def format_function(self, depth: int, row: FunctionRow) -> Row:
        cost, style, is_watched = row.cost, "" if ":" in row.name else "bold", self.view.after.memory is not None
        name = self.places.format_function(row.name, cost.repeats)
        return Row(
            Cell("function", (f"{'  ' * depth}{name}", style), comfort=24, most=60),
            *self.list_time(cost),
            Cell("backward", format_share(cost.backward, 1) if cost.backward else "", right=True, comfort=8),
            Cell("kernels", f"{cost.kernels:,}", right=True, comfort=7),
            Cell("ops", round_count(cost.ops), right=True, comfort=6, leaves=2 if is_watched else None, optional=True),
            Cell("moves", format_bytes(cost.bytes), right=True, comfort=9, leaves=1, optional=True),
            Cell("peak", format_bytes(cost.peak) if cost.peak else "", right=True, comfort=9, leaves=3, optional=True),
            Cell("buffers", format_bytes(cost.held), right=True, comfort=9, leaves=0, optional=True),
        )

    def list_time(self, cost: overview.Cost) -> list[Cell]:
        """Returns the cells of the time and its share, empty if nothing was timed."""
        if self.view.is_pair or not self.total.seconds:
            return []
        share = Cell("of all", format_share(cost.seconds, self.total.seconds), right=True, comfort=6)
        return [Cell("time", format_seconds(cost.seconds), right=True, comfort=7), share]

    def add_changed_schedules(self) -> None:
        """Adds how much changed, which the verdict does not say."""
        page, diff = self.page, self.view.diff
        schedules = diff.schedules
        counts = {
            "changed": sum(item.is_pair and not item.is_empty for item in schedules),
            "the same": sum(item.is_empty for item in schedules),
            "only before": sum(item.after is None for item in schedules),
            "only after": sum(item.before is None for item in schedules),
        }
        said = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        page.head("Overview", Text(f"{format_plural(len(schedules), 'schedule')}: {said}"))
        totals = describe_totals(page, diff.before.totals, diff.after.totals)
        # then the verdict says only how the sides ended
        if totals and diff.before.error != diff.after.error:
            page.add(Text(", ").join(totals), indent=2)

    def add_values(self) -> None:
        """Adds the first outputs that differ by more than rounding."""
        outputs = [(item.index, output) for item in self.view.schedules for output in item.outputs]
        different = [(schedule, output) for schedule, output in outputs if output.status == "different"]
        if different:
            self.page.head("Values", f"{format_plural(len(different), 'output')} different")
        for schedule, output in different[:_MOST_OUTPUTS]:
            self.page.add(f"schedule {schedule}, ", format_output(self.page, output), indent=2, hang=4)

    def add_kernels(self, most: int = _MOST_ROWS) -> None:
        shown = self.kernels[:most]
        if not self.view.is_pair:
            order = "longest first" if self.total.seconds else "most work first"
            if self.view.sort is not None:
                order = f"sorted by {self.view.sort}"
            self.page.head("Kernels", f"{count_shown(len(shown), len(self.kernels), 'kernel')}, {order}")
            self.page.table(map(self.format_kernel, shown))
            for row in (row for row in self.kernels if row.kernel.optimizations):
                self.page.head("Optimizations", f"{row.kernel.name}: the least time of a launch with them")
                self.page.add_each(list_optimizations(row.kernel), indent=2)
        elif shown:
            what = "time" if any(row.is_timed for row in self.kernels) else "work"
            count = count_shown(len(shown), len(self.kernels), "change")
            about = f"{count}, the largest of {what} first; equal ones, the layers of a network, are one"
            self.page.head("Kernels", about)
            self.page.table(map(self.format_changed_kernel, shown))

    def format_kernel(self, row: overview.KernelRow) -> Row:
        kernel, cost, measured = row.kernel, row.after, row.kernel.measured
        launches, median = cost.launches, ""
        if measured is not None:
            launches, median = measured.launches, format_seconds(measured.median)
        return Row(
            Cell("kernel", (kernel.name, "bold" if kernel.failed is None else ALERT), comfort=18, most=40),
            Cell("computes", kernel.title, comfort=30, most=60, leaves=3, label=""),
            Cell("phase", kernel.phase or "", comfort=8, leaves=4, label=""),
            Cell("times", format_count(launches), right=True, comfort=5),
            Cell("median", median, right=True, comfort=7),
            Cell("of all", format_share(cost.seconds, self.total.seconds), right=True, comfort=6),
            *self.list_work(cost, cost),
            *list_speed(kernel, self.view.after.device),
            Cell("with BEAM", describe_beam(kernel), right=True, comfort=9, leaves=8),
            Cell("redundancy", format_redundancy(kernel.redundancy), right=True, comfort=10, leaves=2, optional=True),
            Cell("threads", format_count(kernel.threads), right=True, comfort=7, leaves=1, optional=True),
            Cell("lines", self.name_places(row.lines), comfort=18, most=40, leaves=4),
        )

    def name_places(self, lines: Iterable[str]) -> Piece:
        return self.places.format_first(list(lines), _MOST_PLACES), "dim"

    def list_work(
        self, before: overview.Cost, after: overview.Cost, ops_leave: int | None = None, moves_leave: int = 0
    ) -> list[Cell]:
        """Returns the cells of ops and bytes: of one run with their shares, of two runs as changes."""
        if self.view.is_pair:
            ops = self.page.compare(before.ops, after.ops, round_count)
            moves = self.page.compare(before.bytes, after.bytes, format_bytes)
            first = Cell("ops", ops, right=True, comfort=24, most=26, leaves=ops_leave)
            return [first, Cell("moves", moves, right=True, comfort=30, most=34, leaves=moves_leave)]
        moved = format_share(after.bytes, self.total.bytes)
        return [
            Cell("ops", round_count(after.ops), right=True, comfort=8),
            Cell("of all", format_share(after.ops, self.total.ops), right=True, comfort=6),
            Cell("moves", format_bytes(after.bytes), right=True, comfort=9, leaves=moves_leave + 10),
            Cell("of all", moved, right=True, comfort=6, leaves=moves_leave + 9, optional=True),
        ]

    def format_changed_kernel(self, row: overview.KernelRow) -> Row:
        page, change = self.page, row.change
        seconds = page.compare(row.before.seconds, row.after.seconds, format_seconds) if row.is_timed else ""
        # a kernel that is on one side has one amount
        before = row.before if change.before else row.after
        after = row.after if change.after else row.before
        words, parts = list_parts(change)
        return Row(
            Cell("", MARKS[change.status], comfort=1),
            Cell("kernel", page.change(*name_change(change, lambda side: side.kernel.name)), comfort=20, most=44),
            Cell("times", format_count(len(row.places)), right=True, comfort=6, most=12),
            Cell("time", seconds, right=True, comfort=10, most=26),
            *self.list_work(before, after, ops_leave=2, moves_leave=1),
            Cell("lines", self.name_places(row.lines), comfort=16, most=40, leaves=3),
            notes=[page.join((words, "bold"), join_first([side.kernel.name for side in parts], _MOST_NAMES))],
        )

    def add_buffers(self) -> None:
        """Adds the buffers that one run keeps, the largest first."""
        groups = overview.group_buffers(self.view)
        shown, every = groups[:_MOST_OF_PART], [made.bytes for group in groups for _, _, made in group]
        kinds = f", {count_shown(len(shown), len(groups), 'kind')}" * (len(every) > 1)
        about = f"{format_plural(len(every), 'buffer')} kept{kinds}, {format_bytes(sum(every))}, most bytes first"
        if shown:
            self.page.head("Buffers", about)
        self.page.table(map(self.format_buffers, shown))

    def format_buffers(self, group: Sequence[tuple[int, Node, Bufferize]]) -> Row:
        schedule, node, made = group[0]
        return Row(
            Cell("bytes", format_bytes(made.bytes), right=True, comfort=9),
            Cell("times", str(len(group)), right=True, comfort=5),
            Cell("node", name_node(schedule, node.id), right=True, comfort=7),
            Cell("op", node.op, comfort=11),
            Cell("line", (self.places.format(node.line), "dim"), comfort=16, most=30),
            Cell("kept, because", made.reason, comfort=28, most=80),
        )

    def add_lines(self) -> None:
        """Adds what changed for the user's lines, of two runs."""
        lines = overview.count_costs(self.view, "line")
        about = " changed, the largest change of work first; a kernel counts for each of its lines"
        self.add_cost_table("line", lines, about)

    def add_methods(self) -> None:
        """Adds what the methods of Tensor and the phases of one run come to."""
        methods, phases = (overview.count_costs(self.view, by) for by in ("method", "phase"))
        self.add_cost_table("method", methods, ", a kernel counts for each of which it computes a value")
        if len(phases) > 1:
            self.add_cost_table("phase", phases, ", a kernel has the phase of its largest part")

    def add_cost_table(self, noun: str, counted: Sequence[overview.CostRow], about: str) -> None:
        shown = counted[:_MOST_ROWS]
        if shown:
            self.page.head(f"{noun.title()}s", count_shown(len(shown), len(counted), noun) + about)
        self.page.table(self.format_cost(noun, row) for row in shown)

    def format_cost(self, noun: str, row: overview.CostRow) -> Row:
        """Returns the row of a line, a method or a phase; a method has the lines that call it."""
        before, after = row.before, row.after
        kept = self.page.change(str(before.kept), str(after.kept)) if before.kept or after.kept else ""
        kernels = self.page.change(f"{before.kernels:,}", f"{after.kernels:,}")
        comfort = 28 if noun == "method" else 16
        return Row(
            Cell("", MARKS["changed"] if self.view.is_pair else "", comfort=1),
            Cell(noun, (self.places.format(row.name), "bold"), comfort=comfort, most=40),
            *self.list_time(after),
            Cell("kernels", kernels, right=True, comfort=7, most=14),
            *self.list_work(before, after, moves_leave=2),
            Cell("buffers", kept, right=True, comfort=8, most=14, leaves=1),
            Cell("called at", self.name_places(after.lines), comfort=16, most=40, leaves=2),
        )

    def add_rules(self, most: int = _MOST_RULES) -> None:
        page, counted = self.page, overview.count_rules(self.view)
        if not counted:
            return
        sums: list[Text] = []
        for name, write in (("kept", format_count), ("bytes", format_bytes), ("nodes", format_count)):
            before, after = (sum(getattr(getattr(row, side), name) for row in counted) for side in ("before", "after"))
            sums.append(page.change(write(before), write(after)))
        page.head("Buffers", sums[0], " kept (", sums[1], "), ", sums[2], " asked for")
        page.table(map(self.format_rule, counted), most, "... {} more", noun="reason")

    def format_rule(self, row: overview.RuleRow) -> Row:
        page, before, after = self.page, row.before, row.after
        nodes = page.change(format_count(before.nodes), format_count(after.nodes))
        kept = page.change(format_count(before.kept), format_count(after.kept))
        held = page.change(format_bytes(before.bytes), format_bytes(after.bytes))
        example = f"  e.g. node {after.example}" if not self.view.is_pair else ""
        return Row(
            Cell("asked for", nodes, right=True, comfort=9, most=16),
            Cell("kept", kept, right=True, comfort=6, most=16),
            Cell("hold", held, right=True, comfort=10, most=26),
            Cell("why it was asked for", page.join(row.why, (example, "dim")), comfort=32, most=100),
        )

    def add_findings(self) -> None:
        """Adds the findings of one run, by their codes."""
        findings = self.view.after.findings
        if self.view.is_pair or not findings:
            return
        self.page.head("Findings", f"{len(findings)}")
        names = {rule.code: rule.name for rule in RULES}
        for same in group_equal(findings, lambda finding: finding.code):
            first = same[0]
            many = f", {len(same)} times; first" * (len(same) > 1)
            what = f" {names.get(first.code, '')}{many}: {first.message}{self.places.format(first.line, ' ({})')}"
            self.page.add((first.code, ALERT), what, indent=2)


def list_speed(kernel: Kernel, device: Device | None) -> list[Cell]:
    """Returns the cells of what a kernel reaches of its device, and what limits it; none if it was not timed."""
    speed = rate_kernel(kernel, device)
    ops = moved = limit = ""
    if speed is not None:
        ops = f"{format_rate(speed.ops, 'op')} {format_share(speed.ops_share, 1)}"
        moved = f"{format_rate(speed.bytes, 'B')} {format_share(speed.bytes_share, 1)}"
        limit = speed.limit
    return [
        Cell("speed", ops, right=True, comfort=15, leaves=6, label=""),
        Cell("memory", moved, right=True, comfort=14, leaves=5, label=""),
        Cell("limit", limit, comfort=10, leaves=7),
    ]


def _format_mark(mark: MarkTime) -> Row:
    return Row(
        Cell("mark", (mark.name, "bold"), comfort=24),
        Cell("times", f"{mark.calls:,}", right=True, comfort=5),
        Cell("seconds", format_seconds(mark.seconds), right=True, comfort=8),
        Cell("in kernels", format_seconds(mark.kernels), right=True, comfort=8),
        Cell("launches", f"{mark.launches:,}", right=True, comfort=8),
    )
