"""Prints one run or two: the head, then each schedule by section. Of two runs: the verdict, and only what changed."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.text import Text

from vmapdbg.diff.result import CaptureDiff, ScheduleDiff, Side
from vmapdbg.install.patches import Patch
from vmapdbg.model.capture import DIED, Capture, SnippetError
from vmapdbg.model.schedule_index import find_distinct, group_equal, index_of
from vmapdbg.model.wording import format_known, format_plural, inflect
from vmapdbg.page.claims import CHECKED as DIFFED
from vmapdbg.page.claims import SHOWN, account_of_shown, claim_same, claim_values, say_idle, say_left, say_shown
from vmapdbg.page.format import Places, compare_sides, format_bytes, format_ids, format_share, round_count
from vmapdbg.page.overview import group_kernels, say_trivial, sum_kernels
from vmapdbg.page.sections import SECTIONS, load_section
from vmapdbg.page.sentences import describe_crash, describe_left
from vmapdbg.page.text import view as views
from vmapdbg.page.text.layout import AFTER, ALERT, BEFORE, NOTE, Cell, Page, Piece, Row
from vmapdbg.page.text.memory import add_memory, add_memory_line
from vmapdbg.page.text.overview import add_overview, add_part
from vmapdbg.page.view import View, select_schedules
from vmapdbg.page.why import explain

if TYPE_CHECKING:
    from vmapdbg.suite.compare import SuiteSide

_MANY_SCHEDULES = 4
_MOST_FINDINGS = 5
_MOST_LINES, _LEAST_SOURCE = 48, 12


def print_capture(
    capture: Capture,
    console: Console,
    *,
    only: Collection[str] = SECTIONS,
    schedule: int | Literal["all"] | None = None,
    show_all: bool = False,
    selected: Sequence[ScheduleDiff] | None = None,
) -> None:
    """Prints a capture: header, schedules, and the findings that belong to nothing printed. `only` chooses sections.
    `schedule` is an index, or `all`; None prints schedules with nothing new in one line each. `show_all` prints every
    node and every kernel in a row of its own. `selected` are parts of schedules; None prints all. Raises ValueError for
    an unknown section, Failure for an unknown index."""
    if unknown := sorted(set(only) - set(SECTIONS)):
        raise ValueError(f"unknown section {unknown[0]!r}: choose from {', '.join(SECTIONS)}")
    number = schedule if isinstance(schedule, int) else None
    parts = select_schedules(View.of_one(capture), number) if selected is None else selected
    page = _print_header(capture, console, show_all=show_all)
    run = views.RunView(page, capture, copies_source=selected is not None)
    reasons: dict[int, str] = {}
    if selected is None and schedule is None:
        reasons = {} if show_all else _list_brief_reasons(capture)
        if set(only) == set(SECTIONS):
            _add_headline(page, capture)
    _print_schedules(run, [(part, reasons.get(part.index, "")) for part in parts], only)
    rest = run.findings.rest if selected is None and number is None else []
    if rest:
        page.head("Findings")
    for found in rest:
        kernel, node = format_known("kernel {}", found.kernel), format_known("node {}", found.node)
        about = ", ".join(filter(None, (kernel, node, page.places.format(found.line))))
        page.add((found.code, ALERT), f" {found.message}", format_known(" ({})", about), indent=2)
    page.print()


def print_diff(
    diff: CaptureDiff, console: Console, *, selected: Sequence[ScheduleDiff] | None = None, show_all: bool = False
) -> None:
    """Prints the verdict, then what changed, with `show_all` equal parts, too; of `selected` parts, None: of all."""
    page = print_head(diff, console, show_all=show_all)
    items = [(part, "") for part in (diff.schedules if selected is None else selected)]
    if selected is None and not show_all:
        items = list(_list_brief(diff))
    _print_schedules(views.RunView(page, diff), items)
    page.print()


def print_overview(view: View, console: Console, hidden: str) -> None:
    """Prints the head and the overview of one run or of two; `hidden` says how to see the rest."""
    page = print_head(view.diff, console) if view.is_pair else _print_header(view.after, console)
    add_overview(view, page, hidden)
    page.print()


def print_next_steps(capture: Capture, console: Console) -> None:
    """Prints the commands to try after a run, which the tool remembers."""
    page, steps = Page(console, Places.of(capture)), dict[str, str]()
    if capture.findings:
        steps["lint"] = f"what to change: {format_plural(len(capture.findings), 'finding')}"
    if boundaries := explain(capture, None, None):
        schedule = next(one for one in capture.schedules if one.index == boundaries[0].schedule)
        line, many = index_of(schedule).nodes[boundaries[0].node or 0].line, len(boundaries)
        largest = f" (largest of {many} buffers)" * (many > 1)
        steps[f"why {boundaries[0].name}"] = f"why {page.places.format(line) or 'it'} is not fused{largest}"
    steps["check"] = "whether the values are right"
    page.head("Next")
    for step, about in steps.items():
        page.add((f"vmapdbg {step:<{max(map(len, steps))}}  ", NOTE), about, indent=2)
    page.print()


def print_memory(capture: Capture, console: Console) -> None:
    """Prints the head and the page of the memory that a run had."""
    page = _print_header(capture, console)
    add_memory(capture, page)
    page.print()


def print_peaks(view: View, console: Console) -> None:
    """Prints the peaks of two runs, if the memory of both was watched."""
    page = Page(console)
    add_memory_line(view, page)
    page.print()


def print_part(view: View, console: Console, asked: str, hidden: str) -> None:
    """Prints a page on a part of one run, which `asked` names; `hidden` says how to see the rest."""
    page = _print_header(view.after, console)
    add_part(view, page, asked)
    programs = group_kernels(view)
    if len(programs) == 1:
        start = len(page.lines)
        run = views.RunView(page, view.after, copies_source=True)
        load_section("source")(views.ScheduleView(run, programs[0].places[0].pair))
        room = max(_MOST_LINES - start, _LEAST_SOURCE)
        if cut := page.lines[start + room :]:
            del page.lines[start + room :]
            page.add((f"... {format_plural(len(cut), 'line')} more: --only source", "dim"))
    page.add((hidden, "dim"), gap=True)
    page.print()


def _print_schedules(
    run: views.RunView, items: Iterable[tuple[ScheduleDiff, str]], only: Collection[str] = SECTIONS
) -> None:
    """Prints parts of schedules, in one line if they have a reason for that. No blank line is between such lines."""
    for is_brief, group in groupby(items, key=lambda item: bool(item[1])):
        if is_brief:
            run.page.add()
            _print_brief(run, list(group))
            continue
        for pair, _ in group:
            views.print_schedule(views.ScheduleView(run, pair), only)


def _print_brief(run: views.RunView, items: Sequence[tuple[ScheduleDiff, str]]) -> None:
    """Adds a line for each schedule of one run; of two runs, schedules with the same reason share a line."""
    page = run.page
    if run.diff is None:
        for pair, reason in items:
            option = (f"  ({reason}; --schedule {pair.index})", "dim")
            page.add(*views.describe_schedule(views.ScheduleView(run, pair), "--"), option, hang=3)
        return
    for group in group_equal(items, lambda item: item[1]):
        pairs, reason = [pair for pair, _ in group], group[0][1]
        totals = [item for pair in pairs if (item := pair.totals_after or pair.totals_before)]
        held = format_plural(sum(item.kernels for item in totals), "kernel")
        if copies := sum(item.copies for item in totals):
            held += f" + {format_plural(copies, 'copy', 'copies')}"
        sign, style = views.MARKS.get(reason.replace(" ", "-"), ("~", "dim"))
        names = format_ids(pair.index for pair in pairs)
        if any(pair.is_pair and pair.before != pair.after for pair in pairs):
            names = ", ".join(map(views.name_schedule, pairs))
        name = f"{sign} {inflect(len(pairs), 'schedule')} {names}"
        page.add((name, style), f"  {reason}", (f"  ({held})", "dim"))


# *** one run


def _print_header(capture: Capture, console: Console, *, show_all: bool = False) -> Page:
    """Prints the head of one run; returns the page for the rest."""
    page = Page(console, Places.of(capture), show_all=show_all)
    counts = [format_plural(len(capture.schedules), "schedule"), format_plural(len(capture.kernels), "kernel")]
    counts += [format_plural(len(capture.findings), "finding")] * bool(capture.findings)
    left = say_left(SHOWN, account_of_shown(capture).left)
    page.add((capture.snippet, "bold"), f"  {say_shown(capture)}{', '.join(counts)}", (left, "yellow"), hang=12)
    for label, fact in _list_facts(capture, page.places):
        page.add((f"{label:<12}", "dim"), fact, hang=12)
    if capture.error is not None:
        where = page.places.format(capture.error.line, " at {}")
        page.add((f"the snippet failed{where}: {capture.error.type}", ALERT))
        page.add_each([*capture.error.message.splitlines(), *describe_crash(capture.error.crash)], indent=2)
    page.print()
    return page


def _add_headline(page: Page, capture: Capture) -> None:
    """Adds what a small run comes to."""
    rows = group_kernels(View.of_one(capture))
    if not rows:
        return
    total, first = sum_kernels(capture), rows[0]
    share, place = format_share(first.after.ops, total.ops), page.places.format_first(list(first.lines), 1)
    most = f"; {share} of the ops in {first.kernel.name}{format_known(', {}', place)}" * (len(rows) > 1 and share != "")
    work = f"{round_count(total.ops)} ops executed, {format_bytes(total.bytes)} moved"
    page.add((work + most, "bold"), gap=True)


def _list_facts(capture: Capture, places: Places) -> Iterator[tuple[str, Piece]]:
    """Yields the target, the patches or what was observed, and the files, each with its label."""
    versions = capture.versions
    with_what = f"tinygrad {versions.tinygrad}, Python {versions.python}, vmapdbg {versions.vmapdbg}"
    yield "target", f"{capture.target}   ({with_what})"
    if capture.mode == "observe":
        # which tinygrad was observed, and what could not be observed
        names = dict.fromkeys(filter(None, (versions.tinygrad, versions.tree, versions.commit)))
        where = format_known("  {}", ", ".join([*names][1:]))
        yield "tinygrad", f"{versions.tinygrad}, observed (nothing replaced){where}"
    else:
        yield "patches on", ", ".join(name for name, state in capture.patches.items() if state) or "none"
        if capture.patches_off:
            yield "patches off", (capture.patches_off, "bold yellow")
    for sentence in capture.missing:
        yield "missing", (sentence, "bold yellow")
    for short, path in places.full.items():
        if path != capture.snippet and not path.endswith("/" + capture.snippet):
            yield "file", f"{short} is {path}"


def _list_brief_reasons(capture: Capture) -> dict[int, str]:
    """Returns index -> reason for each schedule with nothing to look at, and, of many schedules, nothing new."""
    found = {finding.schedule for finding in capture.findings}
    first = {again: index for index, equal in find_distinct(capture).items() for again in equal}
    brief: dict[int, str] = {}
    for schedule in capture.schedules:
        number, reason = schedule.index, say_trivial(schedule)
        if number in found or schedule.not_in_key or any(kernel.failed for kernel in schedule.kernels):
            continue
        if not reason and len(capture.schedules) > _MANY_SCHEDULES:
            again = format_known("the kernels of schedule {} again", first.get(number))
            reason = again if schedule.kernels else say_idle(capture)
        if reason:
            brief[number] = reason
    return brief


def print_patches(patches: Sequence[Patch], states: Mapping[str, bool], console: Console) -> None:
    """Prints the table of patches; a patch that `states` does not name is off."""
    page = Page(console)
    page.table((_format_patch(patch, states.get(patch.name, False)) for patch in patches), indent=0)
    page.print()


def _format_patch(patch: Patch, is_on: bool) -> Row:
    state = ("on", "green") if is_on else ("off", ALERT)
    return Row(
        Cell("patch", (patch.name, "bold"), comfort=16),
        Cell("state", state if patch.switchable else ("always", "green"), comfort=6),
        Cell("what it does", patch.summary, comfort=30, most=100, leaves=2, label="", own_line=True),
    )


# *** two runs


def print_head(diff: CaptureDiff, console: Console, *, show_all: bool = False) -> Page:
    """Prints the verdict, the sides, and what they printed; returns the page for the rest."""
    page = Page(console, Places(_collect_places(diff), diff.after.snippet), show_all=show_all)
    page.add(_format_verdict(page, diff))
    add_sides(page, diff.before, diff.after)
    if not diff.same_snippet:
        page.add(("different snippets: compared as far as their graphs agree", "bold yellow"))
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
        nodes = [node for item in schedule.nodes for node in (item.before, item.after)]
        nodes += (*schedule.nodes_only_before, *schedule.nodes_only_after)
        yield from (node.line for node in (*schedule.same_nodes, *nodes))
        sides = (side for change in schedule.kernels for side in (*change.before, *change.after))
        yield from (line for side in sides for line in side.kernel.lines)


def _list_brief(diff: CaptureDiff) -> Iterator[tuple[ScheduleDiff, str]]:
    """Yields each schedule with the reason why it gets only one line; no reason: it is printed whole."""
    seen: dict[str, ScheduleDiff] = {}
    for schedule in diff.schedules:
        reason = ""
        if schedule.not_deterministic:
            reason = "not deterministic: two runs of before make other schedules"
        elif schedule.is_empty:
            reason = "unchanged"
        elif not schedule.is_pair:
            reason = views.name_only_side(schedule)
        else:
            # layers of a network change alike, except for their place and their values
            nameless = replace(schedule, before=0, after=0, line_before=None, line_after=None, outputs=())
            first = seen.setdefault(repr(nameless), schedule)
            if first is not schedule:
                reason = f"the changes of schedule {views.name_schedule(first)} again"
        yield schedule, reason


def _print_findings(page: Page, diff: CaptureDiff) -> None:
    sides = {"gone": diff.findings_gone, "new": diff.findings_new}
    counts = [f"{len(findings)} {word}" for word, findings in sides.items() if findings]
    if counts:
        page.head("Findings", ", ".join(counts))
    for sign, style, findings in (("-", BEFORE, diff.findings_gone), ("+", AFTER, diff.findings_new)):
        for found in page.first(findings, _MOST_FINDINGS, f"{sign} {{}} more", noun="finding", indent=0, style=style):
            page.add((f"{sign} ", style), page.finding(found, style=style), hang=4)


def _format_verdict(page: Page, diff: CaptureDiff) -> Text:
    before, after = diff.before, diff.after
    if before.error is not None and after.error is not None and not before.schedules + after.schedules:
        ends = f"{_describe_failure(before.error)} before, {_describe_failure(after.error)} after"
        return page.text(f"nothing to compare: {ends}", ALERT)
    if before.error != after.error:
        parts = [page.text(f"before {_describe_end(before)}; after {_describe_end(after)}")]
    else:
        parts = _describe_counts(page, diff) + views.describe_totals(page, before.totals, after.totals)
    if diff.values != "unknown":
        said = claim_values(diff.values, diff.account)
        parts.append(page.text(said, views.STATUS_STYLES.get(diff.values, "")))
    if moved := sum(item.not_deterministic for item in diff.schedules):
        parts.append(page.text(f"{format_plural(moved, 'schedule')} not deterministic", ALERT))
    if diff.printed is not None and not diff.printed.equal and not diff.printed.left:
        parts.append(page.text("printed differently", ALERT))
    verdict = Text(", ").join(parts)
    left = [replace(one, reason=describe_left(one.reason)) for one in (diff.account.left if diff.account else ())]
    rest = page.text(say_left(DIFFED, left), "yellow")
    if diff.is_empty:
        return page.join(claim_same(diff.account), ": ", verdict, rest)
    verdict.stylize_before("bold")
    return page.join(verdict, rest)


def _describe_end(side: Side) -> str:
    if side.error is None:
        return f"made {format_plural(side.schedules, 'schedule')}, {format_plural(side.totals.kernels, 'kernel')}"
    when = f"after {format_plural(side.schedules, 'schedule')}" if side.schedules else "before its first schedule"
    failure = _describe_failure(side.error)
    return failure if side.error.type == DIED else f"{failure} {when}"


def _describe_failure(error: SnippetError) -> str:
    return "DIED" if error.type == DIED else f"RAISED {error.type}"


def _describe_counts(page: Page, diff: CaptureDiff) -> list[Text]:
    """Returns the counts for two runs with the same number of kernels."""
    if diff.before.totals.kernels != diff.after.totals.kernels:
        return []
    kernels = [item for one in diff.schedules if not one.not_deterministic for item in one.kernels]
    # a kernel of one side is not a changed kernel of the other
    changed = sum(item.status not in ("unchanged", "only-before") for item in kernels)
    every = format_plural(diff.after.totals.kernels, "kernel")
    if changed:
        return [page.text(f"{changed} of {every} changed")]
    nodes = sum(len(item.nodes) for item in diff.schedules)
    buffers = sum(part.status != "unchanged" for item in diff.schedules for part in item.bufferizes)
    said = [f"{every} the same"]
    said += [f"{format_plural(nodes, 'node')} changed"] * bool(nodes)
    said += [f"{buffers} {diff.schedules[-1].buffer_op_after} changed"] if buffers else []
    return list(map(page.text, said))


def add_sides(page: Page, before: "Side | SuiteSide", after: "Side | SuiteSide") -> None:
    """Adds what both sides have in common, and what only one side has."""
    styles = {"before": BEFORE, "after": AFTER, "both": "dim"}
    for name, labels in compare_sides(before, after).items():
        if labels:
            page.add((f"{name:8}", styles[name]), ", ".join(labels), hang=8)


def _print_errors(page: Page, diff: CaptureDiff) -> None:
    errors = {"before": diff.before.error, "after": diff.after.error}
    if errors["before"] == errors["after"]:
        errors = {"both sides": diff.after.error}
    for name, error in errors.items():
        if error is not None:
            what = "died" if error.type == DIED else f"raised {error.type}"
            page.add((f"!! {name} {what}{page.places.format(error.line, ' at {}')}", ALERT), hang=3, gap=True)
            page.add_each(error.message.splitlines(), indent=3)


def _print_printed(page: Page, diff: CaptureDiff) -> None:
    printed = diff.printed
    if printed is None or (printed.equal and not page.show_all):
        return
    if printed.equal or printed.left:
        page.head("Printed", "the same" if printed.equal else "not deterministic: two runs of before print other lines")
        return
    page.head("Printed", f"the first difference is in line {printed.line}")
    for sign, style, line in ("-", BEFORE, printed.before), ("+", AFTER, printed.after):
        page.add((f"{sign} ", style), ("it printed no more", "dim") if line is None else line)
