"""Prints what `why` found: decisions by topic; or how values go through the scheduler's passes, to the wrong step."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.text import Text

from vmapdbg.check.result import Difference, OutputPath, PassKind, PassValue, SchedulePath, ValueReport, WrongRewrite
from vmapdbg.model.account import Account
from vmapdbg.model.capture import Capture
from vmapdbg.model.schedule_index import ScheduleIndex, group_equal, index_of
from vmapdbg.model.wording import format_known, format_plural, join_first
from vmapdbg.page.claims import FOLLOWED, claim, say_ended, say_left
from vmapdbg.page.format import Places, format_shape
from vmapdbg.page.text.layout import ALERT, NOTE, Cell, Page, Piece, Row
from vmapdbg.page.why import Explanation, Topic

_LABEL = 17
_MOST_LINES, _MOST_PAGE = 44, 56
"""A page ends its explanations after this many lines, and its titles."""
_MOST_SENTENCES, _MOST_NAMES = 6, 6
_AFTERWARDS: dict[PassKind, str] = {
    "order": "each kernel is right, but their order is wrong: a kernel reads memory too early or too late",
    "run": "the scheduler makes it right: code generation, the compiler, the launch, or shared memory makes it wrong",
}
_NOT_KNOWN = "no pass that could be evaluated changes it; a later step makes it wrong, and it is unknown which"
_VALUES = {"right": ("right", "green"), "wrong": ("wrong", ALERT), "unknown": ("-", "yellow")}
_STEPS = {
    "rule": "the first rewrite that changes it",
    "node": "the first node that it changes, by several rewrites",
    "write": "a write is lost",
    "overwrites": "a value is written to memory of the snippet, to which nothing assigns it",
    "ranges": "the first node that has another value by its ranges",
}


def print_explanations(explanations: Sequence[Explanation], console: Console, *, show_all: bool = False) -> None:
    """Prints each kind of explanation once; unless `show_all`, the first in full, then some titles and a count."""
    page = Page(console, show_all=show_all)
    groups = group_equal(explanations, lambda one: id(one) if show_all else one.kind)
    groups.sort(key=lambda group: [-sum(costs) for costs in zip(*(one.cost for one in group), strict=True)])
    if not groups:
        page.add(("no boundary: no kernel reads another one's buffer", "dim"))
    elif len(explanations) > 1:
        different = f", {len(groups)} different" * (len(groups) < len(explanations))
        first, count = explanations[0], len(explanations)
        subjects = format_plural(count, "node" if first.kernel is None else "kernel")
        if first.kernel is not None and first.node is not None:
            subjects = f"{format_plural(count, 'buffer')} between kernels"
        page.add((f"{subjects}{different}, what costs most first", "dim"), hang=0)
        page.add()
    titles = [page.text(f"{group[0].title}{f'  x{len(group)}' * (len(group) > 1)}", "bold") for group in groups]
    for position, group in enumerate(groups):
        start = len(page.lines)
        page.add(titles[position])
        _add_steps(page, group)
        if not show_all and len(page.lines) > _MOST_LINES and position:
            del page.lines[start:]
            shown = titles[position : position + _MOST_PAGE - start]
            page.lines += [page.wrap(Text(title.plain))[0] for title in shown]
            left = sum(map(len, groups[position + len(shown) :]))
            more = format_known("... {:,} more; ", left or None)
            page.add((f"{more}--all explains each of the {len(explanations):,}", "dim"))
            break
        if position + 1 < len(groups):
            page.add()
    page.print()


def _add_steps(page: Page, group: Sequence[Explanation]) -> None:
    steps = list(group[0].steps)
    if len(group) > 1:
        steps.append(Topic("the same", [join_first([one.name for one in group[1:]], _MOST_NAMES)]))
    for step in steps:
        label = f"  {step.topic:<15}"
        for style, sentences in ((NOTE, step.sentences), (ALERT, step.alerts)):
            more = f"{'':<15}... {{}} more: --all"
            for sentence in page.first(sentences, _MOST_SENTENCES, more):
                page.add((label, NOTE), (sentence, style), hang=_LABEL)
                label = " " * _LABEL


# *** values


def print_value_paths(capture: Capture, report: ValueReport, account: Account, console: Console) -> None:
    """Prints the verdict, then each schedule; one in which all is right is a line."""
    page = Page(console, Places.of(capture))
    _print_verdict(page, capture, report, account)
    for path in report.schedules:
        _print_schedule(page, index_of(capture.schedules[path.schedule]), path)
    if report.stopped:
        page.add(("stopped: other schedules were not followed", "yellow"))
    page.print()


def _print_verdict(page: Page, capture: Capture, report: ValueReport, account: Account) -> None:
    outputs = [output for path in report.schedules for output in path.outputs]
    wrong = sum(output.first_wrong is not None for output in outputs)
    verdict = claim(FOLLOWED, account, say_ended(capture))
    if wrong:
        verdict = (f"{wrong} of {format_plural(len(outputs), 'output')} wrong", ALERT)
    page.add((capture.snippet, "bold"), "  ", verdict, (say_left(FOLLOWED, account.left), "yellow"))
    if not outputs:
        for missing in capture.missing:
            page.add(("not observed: ", "yellow"), missing, indent=2)


def _print_schedule(page: Page, index: ScheduleIndex, path: SchedulePath) -> None:
    head: list[Piece] = [(f"schedule {path.schedule}", "bold"), page.places.format(path.line, "  {}")]
    if path.reason is not None:
        page.add(*head, (f"  not followed: {path.reason}", "yellow"))
    elif all(output.first_wrong is None and output.passes for output in path.outputs):
        unknown = Counter(one.reason for output in path.outputs for one in output.passes if one.status == "unknown")
        after = ""
        for reason, _ in unknown.most_common(1):
            after = f" after each pass but {unknown.total()} that could not be evaluated ({reason})"
        page.add(*head, f"  {format_plural(len(path.outputs), 'output')} right{after}")
    else:
        page.add(*head, gap=True)
        for output in path.outputs:
            _print_output(page, index, output)


def _print_output(page: Page, index: ScheduleIndex, output: OutputPath) -> None:
    called = "buffer of the snippet" if output.of == "buffer" else "output"
    node = index.node(output.node)
    op, place = format_known("  {}", node and f"{node.op} {node.id}"), page.place(node and output.line)
    name: list[Piece] = [f"{called} {output.number} {format_shape(output.shape)} {output.dtype}", (op, "bold"), place]
    if not output.passes:
        page.add(*name, (f"  not followed: {output.reason}", "yellow"), indent=2)
    elif output.first_wrong is None:
        page.add(*name, ("  right", "green"), indent=2)
    else:
        page.add(*name, indent=2)
        page.table(_format_passes(output.passes), indent=4)
        _explain(page, index, output, output.first_wrong)
        if output.optimizations:
            page.add("the same kernel:", indent=4)
            page.table(_format_passes(output.optimizations, is_grouped=False), indent=6)


def _format_passes(passes: Sequence[PassValue], is_grouped: bool = True) -> Iterator[Row]:
    first = next((one for one in passes if one.status == "wrong"), None)

    def find_group(one: PassValue) -> object:
        # passes of code generation in a row that give the same value share a row; the first wrong pass has its own
        is_alone = one.kind != "codegen" or one is first or not is_grouped
        return one if is_alone else (one.status, one.difference, one.reason)

    last: Difference | None = None
    for _, alike in groupby(passes, find_group):
        one, *others = alike
        found, about = one.difference, one.reason or ""
        if found is not None and found == last:
            about = "in the same way"
        elif found is not None:
            where = ", ".join(map(str, found.index))
            about = f"[{where}] is {found.got}, should be {found.expected}; {found.wrong} of {found.total}"
        last = found
        yield Row(
            Cell("pass", one.name + format_known(" to {}", others[-1].name if others else None), comfort=30),
            Cell("value", _VALUES[one.status], comfort=7),
            Cell("", about, comfort=40, most=60, label=""),
            Cell("asked for at", one.place or "", comfort=34, leaves=1, optional=True),
        )


# *** what makes it wrong


def _explain(page: Page, index: ScheduleIndex, output: OutputPath, first: PassValue) -> None:
    if output.rewrite is not None:
        _explain_rewrite(page, index, output.rewrite, first)
    elif first.kind in _AFTERWARDS:
        sentence = _AFTERWARDS[first.kind]
        before = output.passes[: output.passes.index(first)]
        if any(one.status != "right" for one in before):
            sentence = _NOT_KNOWN
        elif before[-1].kind == "codegen":
            sentence = "its linear program is right: the renderer, the compiler or the machine makes it wrong"
        page.add(sentence, indent=4)
        page.add(("more: vmapdbg check", "dim"), indent=4)
    else:
        reason = output.reason or "what makes it wrong was not found"
        page.add((f"{first.name}: {reason}", "yellow"), indent=4)


def _explain_rewrite(page: Page, index: ScheduleIndex, found: WrongRewrite, first: PassValue) -> None:
    where = format_known(", by the rule at {}", found.rule)
    page.add((f"{_STEPS[found.kind]}, in {first.name}{where}:", ALERT), indent=4)
    page.add(found.before, indent=6, hang=3)
    page.add(f"-> {found.after}", indent=6, hang=3)
    page.add(_describe_place(found), indent=6)
    if found.extra:
        extra = ", ".join(found.extra)
        page.add((f"what became of it depends on {extra}, which it should not", "red"), indent=6)
    node = index.node(found.node)
    if node is not None:
        page.add("of node ", (f"{node.op} {node.id}", "bold"), page.place(found.line), indent=6)
    if found.tried > 1:
        skipped = format_known(", {} of them could not be evaluated", found.skipped or None)
        page.add((f"{format_plural(found.tried, 'step')} looked at{skipped}", "dim"), indent=6)


def _describe_place(found: WrongRewrite) -> str:
    difference = found.difference
    steps = list(map("{} = {}".format, found.ranges, difference.index))
    if rest := difference.index[len(found.ranges) :]:
        steps.append(f"[{', '.join(map(str, rest))}]")
    at = format_known("at {} ", ", ".join(steps))
    count = f"{difference.wrong} of {difference.total}"
    return f"{at}it is {difference.got}, and was {difference.expected}; {count} differ"
