"""Prints what `tune` found: the edits with their effect and their diff, or the limit, and what was tried."""

from statistics import median

from rich.console import Console

from vmapdbg.model.wording import format_known, format_plural, join_first
from vmapdbg.page.documents import TuneDocument
from vmapdbg.page.format import format_bytes, format_measured, format_seconds, format_share, round_count
from vmapdbg.page.speed import describe_speed
from vmapdbg.page.text.layout import AFTER, BEFORE, NOTE, Page
from vmapdbg.tune.search import EditTrial, Proposal

_MOST_TRIED, _MOST_NAMED = 8, 2
_OUTCOMES = {"same-kernels": "same kernels", "other-values": "other values", "fails": "fails"}
_DIFF = {"+": AFTER, "-": BEFORE, "@": NOTE}


def print_tune(document: TuneDocument, console: Console) -> None:
    """Prints the result of a search."""
    page, count = Page(console), len(document.proposals)
    result = f"{format_plural(count, 'change')} found" if count else "no edit that was tried helps"
    page.add((document.snippet, "bold"), "  ", (result, "bold"))
    what = "kernels and launching them, BEAM held at 0" if document.by == "time" else "the peak of the memory"
    runs = f"{format_plural(document.runs, 'run')} in {format_seconds(document.seconds)}"
    page.add((f"tinygrad {document.versions.tinygrad}, {runs}; measured: {what}", "dim"), indent=2)
    for proposal in document.proposals:
        _add_proposal(page, document, proposal)
    if not count:
        page.add(f"unchanged: {format_measured(document.by, document.number)}{_describe_limit(document)}", indent=2)
    _add_tried(page, document)
    if any(proposal.diff for proposal in document.proposals):
        page.add(("to make the edits: patch -p0 with the diff, or vmapdbg tune with --write", "dim"))
    page.print()


def _add_proposal(page: Page, document: TuneDocument, proposal: Proposal) -> None:
    before, after = median(proposal.before), median(proposal.after)
    page.add()
    for edit in proposal.edits:
        label = edit.label if edit.file else f"run with {edit.label}"
        page.add((format_known("{}  ", edit.line), NOTE), (label, "bold"))
    change = page.compare(before, after, lambda number: format_measured(document.by, number))
    noise = format_measured(document.by, proposal.noise)
    runs = f"  medians of {len(proposal.after)} runs each, in turns, noise {noise}"
    facts = {document.by: page.join(change, (runs, "dim"))}
    facts["kernels"] = page.text(" -> ".join(map(str, proposal.kernels)))
    facts["ops"] = page.compare(proposal.executed_ops[0], proposal.executed_ops[-1], round_count)
    if document.by == "time" and None not in proposal.peak_bytes:
        facts["peak"] = page.text(" -> ".join(format_bytes(size or 0) for size in proposal.peak_bytes))
    compared = format_plural(proposal.compared, "output")
    facts["values"] = page.text(f"{compared} as the numpy reference and the unchanged program have them")
    for name, fact in facts.items():
        page.add(f"{name:8}", fact, indent=2, hang=8)
    if proposal.diff:
        page.add()
    for line in proposal.diff.splitlines():
        # not wrapped: it is a patch
        page.lines.append(page.text(line, _DIFF.get(line[0], "")))


def _describe_limit(document: TuneDocument) -> str:
    kernel, share = document.longest, document.share
    if kernel is None or not share or document.by != "time":
        return ""
    name = f"{kernel.name}{format_known(' ({})', kernel.title)}{format_known(', {}', next(iter(kernel.lines), None))}"
    speed = format_known(": {}", describe_speed(kernel, document.device))
    return f"; {format_share(share, 1)} of the time in kernels is {name}{speed}"


def _add_tried(page: Page, document: TuneDocument) -> None:
    tried = [trial for trial in document.tried if trial.outcome != "helps"]
    if tried:
        page.head("tried, and no better", f"one run each; unchanged {format_measured(document.by, document.number)}")
    for trial in page.first(tried, _MOST_TRIED, "... and {} more (--json has them)"):
        outcome = _OUTCOMES.get(trial.outcome) or format_measured(document.by, trial.number or 0)
        page.add((f"{outcome:13}", "dim"), _name(trial), (format_known(" ({})", trial.about), "dim"), indent=2, hang=13)
    if document.untried:
        names = join_first([_name(trial) for trial in document.untried], _MOST_NAMED)
        page.add((f"not tried in {document.budget:g} seconds (--budget), {len(document.untried)}: {names}", "yellow"))


def _name(trial: EditTrial) -> str:
    return "; ".join(f"{format_known('{} ', edit.line)}{edit.label}" for edit in trial.edits)
