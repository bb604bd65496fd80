"""Prints what `check` found: the verdict, each wrong output, and the first wrong buffer with the decision behind it."""

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from vmapdbg.check import findings
from vmapdbg.check.result import BufferCheck, CheckReport, Comparison, NumberFault, OutputCheck, ScheduleCheck
from vmapdbg.lint.memory import describe_race
from vmapdbg.model.account import Account
from vmapdbg.model.capture import Capture
from vmapdbg.model.schedule_index import ScheduleIndex, index_of, name_node
from vmapdbg.model.wording import format_known, format_plural
from vmapdbg.page import check_sentences as say
from vmapdbg.page.claims import CHECKED, OPEN, claim, count_things, say_ended, say_left
from vmapdbg.page.format import Places, format_shape
from vmapdbg.page.number_sentences import describe_gradient, describe_numbers, list_new_numbers
from vmapdbg.page.sentences import describe_crash, describe_error, describe_expected, describe_left_out
from vmapdbg.page.text.layout import ALERT, Page

_MOST_OUTPUTS, _MOST_SKIPPED, _MOST_NODES = 3, 3, 6
_MOST_TESTS, _MOST_REASONS = 3, 12
TITLES = {
    findings.OVERWRITTEN: "overwritten input",
    findings.LIVE_CHANGED: "overwritten tensor",
    findings.NEVER_WRITTEN: "read but never written",
    findings.LOST_WRITE: "lost write",
    findings.NOT_CHOSEN: "written outside of the index",
    findings.STALE_READ: "read at the wrong time",
    findings.ENDLESS: "rewriting without end",
    findings.WRONG_GRADIENT: "wrong gradient",
    findings.RACE: "race between threads",
    findings.NUMBERS["not-finite"]: "NaN or infinity",
    findings.NUMBERS["lost-digits"]: "lost digits",
    findings.NUMBERS["unwritten"]: "read but never written",
}
_NUMBERS = {
    "not-finite": "with NaN or infinity",
    "lost-digits": "with lost digits",
    "unwritten": "computed of memory that nothing has written",
}
_EXCUSED = {"close": "within the tolerance", "rounding": "beyond it by no more than their own rounding"}


def print_check(capture: Capture, report: CheckReport, console: Console) -> None:
    """Prints the report of a run; what is right is one line."""
    page = Page(console, Places.of(capture))
    _print_verdict(page, capture, report)
    _print_graph_error(page, capture)
    repeats = say.Repeats(report)
    for check in report.schedules:
        is_left, wrong = any(left.count for left in check.left), repeats.list_new(check)
        numbers = list_new_numbers(report, check)
        left_out = check.lost or check.cut or check.unwritten or any(call.wrong for call in check.gradients)
        if wrong or is_left or check.failed or left_out or numbers or repeats.list_new_races(check):
            page.add()
            _print_schedule(page, capture, check, repeats, numbers)
    page.print()


def _print_verdict(page: Page, capture: Capture, report: CheckReport) -> None:
    account = report.settle(capture)
    outputs = [output for check in report.schedules for output in check.outputs]
    wrong = sum(output.comparison.status == "wrong" for output in outputs)
    failed = sum(check.failed is not None for check in report.schedules)
    lost = sum(len(check.lost) for check in report.schedules)
    wrong_gradients = sum(len(call.wrong) for check in report.schedules for call in check.gradients)
    bad = any(one.is_finding for check in report.schedules for one in check.numbers)
    races = len({race.origin for check in report.schedules for race in check.races})
    verdict = claim(CHECKED, account, say_ended(capture))
    if wrong:
        verdict = (f"{wrong} of {format_plural(len(outputs), 'output')} wrong", ALERT)
    elif wrong_gradients or bad or races or any(one.lost or one.cut or one.unwritten for one in report.schedules):
        verdict = claim(CHECKED._replace(good=CHECKED.partly), account, say_ended(capture))[0], OPEN
    faults = [(lost, "write", "lost"), (wrong_gradients, "gradient", "wrong"), (races, "race", "between threads")]
    for kind, about in _NUMBERS.items():
        count = sum(one.outputs for check in report.schedules for one in check.numbers if one.kind == kind)
        faults.append((count, "value", about))
    faults.append((failed, "schedule", "failed"))
    said = "".join(f", {format_plural(count, noun)} {about}" for count, noun, about in faults if count)
    page.add((capture.snippet, "bold"), "  ", verdict, (said, ALERT), (say_left(CHECKED, account.left), "yellow"))
    if report.left:
        total = format_plural(len(report.schedules) + report.left, "schedule")
        page.add((f"stopped: {report.left} of {total} not compared", "yellow"), indent=2)
    if outputs:
        runs = format_plural(sum(check.evaluations for check in report.schedules), "graph")
        page.add((f"compared with the numpy reference ({runs} run)", "dim"), indent=2)
    if excused := [output.comparison.status for output in outputs if output.comparison.status in _EXCUSED]:
        counts = [f"{excused.count(status)} {word}" for status, word in _EXCUSED.items() if status in excused]
        page.add((f"{len(excused)} not equal to the bit: {', '.join(counts)}", "dim"), indent=2)


def _print_graph_error(page: Page, capture: Capture) -> None:
    """Prints an error that tinygrad raised while the snippet built a graph: nothing can be compared with it."""
    error = capture.error
    if error is None or error.crash is None or error.crash.schedule is not None:
        return
    where = page.places.format(error.line, " at {}")
    page.add((f"the snippet failed{where}: {describe_error(error)}", "red"), indent=2)
    page.add_each(describe_crash(error.crash), indent=4)
    page.add("there is no graph of what it failed in: nothing of it was compared", indent=4)


def _print_schedule(
    page: Page, capture: Capture, check: ScheduleCheck, repeats: say.Repeats, numbers: Sequence[NumberFault]
) -> None:
    """Prints a schedule or replay with its wrong outputs, each with sentences about other replays, and `numbers`."""
    index = index_of(capture.schedules[check.schedule])
    page.add((say.name_check(check), "bold"), page.places.format(check.line, "  {}"))
    if check.failed is not None:
        _print_failure(page, index, check)
        if check.stock_runs:
            page.add(say.STOCK_RUNS, indent=2)
    for left in (*check.lost, *check.cut):
        page.add((describe_left_out(left), ALERT), page.place(left.line), indent=2)
    page.add_each(map(say.describe_unwritten, check.unwritten), ALERT, indent=2)
    for one in (one for call in check.gradients for one in call.wrong):
        page.add((describe_gradient(one), ALERT), page.place(one.op_line), indent=2)
    for race in repeats.list_new_races(check):
        node = index.node(race.node)
        page.add((describe_race(race.name, race.race), ALERT), page.place(node and node.line), indent=2)
    for fault in numbers:
        made, *advice = describe_numbers(fault)
        page.add((made, ALERT), page.place(fault.line), indent=2)
        page.add_each((f"try: {one}" for one in advice), indent=4)
    for output in repeats.list_new(check):
        _print_output(page, capture, check, output)
        page.add_each(repeats.explain(check, output), ALERT, indent=4)
    # the buffers between the kernels of a replay are not kept
    if check.replay is None and any(output.of not in findings.CHANGED for output in check.wrong):
        _print_blame(page, capture, check)
    for reason in check.unchecked:
        page.add(("not checked: ", "yellow"), reason, indent=2)


def _print_failure(page: Page, index: ScheduleIndex, check: ScheduleCheck) -> None:
    page.add((f"failed: {check.failed}", "red"), indent=2)
    kernel = index.kernel(check.failed_kernel)
    if kernel is not None:
        name, node = f"{kernel.name} #{check.failed_kernel}", index.node(say.find_failed_node(check, kernel))
        writes = format_known(", which writes {}", node and f"{node.op} {node.id}")
        page.add("in kernel ", (name, "bold"), writes, page.place(node and node.line), indent=2)
    sentences = describe_crash(check.crash)
    page.add_each(sentences[:1], indent=2)
    page.add_each(sentences[1:], indent=4)
    if nodes := list(filter(None, map(index.node, check.crash.nodes if check.crash is not None else ()))):
        page.add("it was busy with", indent=2)
    for node in page.first(nodes, _MOST_NODES, "and {} more", indent=4, style=""):
        page.add((f"{node.op} {node.id}", "bold"), page.place(node.line), indent=4)
    expected = page.first(check.expected, _MOST_OUTPUTS, "and {} more outputs", style="")
    page.add_each(map(describe_expected, expected), indent=2)


def _print_output(page: Page, capture: Capture, check: ScheduleCheck, output: OutputCheck) -> None:
    found = output.comparison
    head = f"{say.name_output(output)} {format_shape(output.shape)} {output.dtype}"
    page.add(f"{head}: ", (_count_wrong(found), ALERT), indent=2)
    page.add(_describe_first(found), indent=4)
    page.add_each(map(say.describe_pattern, filter(None, [found.pattern_data])), indent=4)
    for sentence in say.explain_output(index_of(capture.schedules[check.schedule]), check, output):
        page.add((sentence.text, ALERT), page.place(sentence.line), indent=4)
    tolerance, about = found.tolerance, "compared exactly"
    if tolerance.relative:
        near = format_known(", {:.1e} near zero", tolerance.absolute or None)
        up_to = format_plural(tolerance.terms, "rounding")
        about = f"tolerance {tolerance.relative:.1e} of the value{near} (up to {up_to})"
    page.add((about, "dim"), indent=4)


def _count_wrong(found: Comparison) -> str:
    return "wrong" if found.total == 1 else f"{found.wrong:,} of {found.total:,} elements wrong"


def _describe_first(found: Comparison) -> str:
    values = f"{found.got}, should be {found.expected}"
    return values if not found.index else f"first at {list(found.index)}: {values}"


def _print_blame(page: Page, capture: Capture, check: ScheduleCheck) -> None:
    """Prints the first wrong buffer, and the buffers not compared: the first wrong one may be among them."""
    if check.first_wrong_buffer is not None:
        _print_first_wrong(page, capture, check, check.first_wrong_buffer)
    else:
        reason = "is wrong" if check.buffers else "was kept"
        page.add(f"first wrong buffer: not found, no buffer between its kernels {reason}", indent=2)
    skipped = [buffer for buffer in check.buffers if buffer.comparison is None]
    for buffer in page.first(skipped, _MOST_SKIPPED, "and {} more", indent=4, style="yellow"):
        page.add((f"node {buffer.node} was not compared: {buffer.reason}", "yellow"), indent=4)


def _print_first_wrong(page: Page, capture: Capture, check: ScheduleCheck, buffer: BufferCheck) -> None:
    index, found = index_of(capture.schedules[check.schedule]), buffer.comparison
    assert found is not None
    node = index.node(buffer.node)
    name = (index.label(buffer.node), "bold")
    by = index.name_kernel(buffer.kernel)
    about = f" {format_shape(buffer.shape)} {buffer.dtype}, written by {by}"
    page.add("first wrong buffer: ", name, about, page.place(node and node.line), indent=2)
    same = "wrong in the same way"
    # each buffer has its tolerance, by how often it is rounded: that makes no other fault
    if all(replace(output.comparison, tolerance=found.tolerance) != found for output in check.wrong):
        same = f"{_count_wrong(found)}, {_describe_first(found)}{say.bracket_pattern(found)}"
    page.add(same, indent=4)
    for sentence in say.explain_buffer(index, check, buffer):
        style = ALERT if sentence.is_cause else ""
        page.add((sentence.text, style), page.place(sentence.line), indent=4)
    if node is not None and node.realized is not None:
        page.add(f"{index.name_decision(node)}: {node.realized.reason}: {node.realized.detail}", indent=4)
    if made := index.bufferizes.get(buffer.node):
        page.add(f"BUFFERIZE closes {', '.join(made.closed_ranges) or 'no range'}: {made.reason}", indent=4)
    if capture.patches_off:
        page.add((f"patches off: {capture.patches_off}", "yellow"), indent=4)
    culprit = buffer.misread or buffer
    page.add((f"more: vmapdbg why {name_node(check.schedule, culprit.node)}", "dim"), indent=4)
    if buffer.fault is not None and buffer.fault.made_by in {"scheduler", "codegen", "lowering"}:
        page.add((f"by which rewrite: {_describe_rewrite(capture, check)}", "dim"), indent=4)


def _describe_rewrite(capture: Capture, check: ScheduleCheck) -> str:
    """Returns the command that finds the rewrite that made a fault, or why none does."""
    if check.is_sharded:
        return "not known for values that are spread over several devices"
    if capture.schedules[check.schedule].cached:
        return "not known: tinygrad had this schedule in its cache, and no pass ran"
    return f"vmapdbg why --value --schedule {check.schedule}"


def print_run_check(document: findings.ProgramCheck, console: Console) -> None:
    """Prints the findings of a program, and the summary."""
    page = Page(console)
    every = (*document.findings, *document.endless)
    for found in (*every, *document.numbers):
        page.add((found.line or "?", "bold"), "  ", (found.code, ALERT), f" {TITLES.get(found.code, 'wrong value')}")
        sentences = say.describe_endless(found) if found.code == findings.ENDLESS else [found.message]
        page.add_each(sentences, indent=4)
        for test in page.first(found.tests, _MOST_TESTS, "and {}", noun="other test", indent=4):
            page.add(("in ", "dim"), test, indent=4, hang=5)
    account = document.account or Account()
    ended = f"and the program ended with {document.status}" if document.status else ""
    verdict = claim(CHECKED, account, ended)
    if every:
        tests = {test for found in every for test in found.tests}
        count = f"{format_plural(len(every), 'finding')} in {format_plural(len(tests), 'test')}"
        verdict = (f"{count} ({format_plural(document.values, 'value')})", ALERT)
    elif document.numbers:
        verdict = claim(CHECKED._replace(good=CHECKED.partly), account, ended)[0], OPEN
    page.add("vmapdbg check: ", verdict)
    for left in page.first(account.left, _MOST_REASONS, "not compared for {} (--json has them)", noun="other reason"):
        page.add(("not compared: ", "yellow"), f"{count_things(left.what, left.count)}: {left.reason}", indent=2)
    page.print()
