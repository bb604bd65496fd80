"""Prints what `bisect --decisions` found: the decisions that matter, and what the first of them changes."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from vmapdbg.model.wording import format_known, format_plural, join_first
from vmapdbg.page.documents import Decided, DecisionsDocument, DecisionTrial
from vmapdbg.page.format import format_shape
from vmapdbg.page.text.diff import print_diff
from vmapdbg.page.text.layout import Page

_MOST_LISTED = 6


def print_decisions(document: DecisionsDocument, console: Console) -> None:
    """Prints the outcomes, the decisions that were found, all that was tried, and the schedule diff."""
    page = Page(console)
    runs = format_plural(len(document.tried), "run")
    lines = page.wrap((document.snippet, "bold"), f"  {runs}, by {document.by}", hang=2)
    for outcome in document.outcomes:
        what = (f"  ({_name_role(document, outcome.name)})", "dim")
        lines += page.wrap((outcome.name, "bold"), f"  {outcome.summary}", what, indent=2, hang=3)
    lines += [Text(), *_format_found(page, document), Text(), *_format_tried(page, document)]
    page.show(lines)
    if document.changes is not None:
        page.show([Text(), page.text("what the first of them changes", "dim")])
        print_diff(document.changes, console)


def _name_role(document: DecisionsDocument, outcome: str) -> str:
    runs = format_plural(sum(trial.outcome == outcome for trial in document.tried), "run")
    roles: list[str] = []
    if outcome == document.right:
        roles.append(f"taken for right: {document.reference}")
    if outcome == document.given:
        roles.append("as it is")
    return "; ".join([*roles, runs])


def _format_found(page: Page, document: DecisionsDocument) -> list[Text]:
    if document.given == document.right:
        return page.wrap(("it comes out as what is taken for right: there is nothing to mend", "bold"), hang=2)
    does = "changes it" if document.right is None else "makes it right"
    nodes = format_plural(document.candidates, "node")
    if not document.found:
        tried = f"no decision that was tried {does}"
        return page.wrap((tried, "bold"), f"  ({nodes} to force{_format_rest(document)})", hang=2)
    first = document.found[0]
    head = f"any one of these {len(document.found)} decisions {does}, that with the fewest kernels first"
    if len(document.found) == 1:
        head = f"this one decision {does}"
    if len(first.decisions) > 1:
        head = f"these {len(first.decisions)} decisions together make it right"
        head += ", and no part of them does" if document.complete else ": fewer may do"
    lines = page.wrap((head, "bold"), f"  ({nodes} to force{_format_rest(document)})", hang=2)
    for trial in document.found:
        outcome = f" -> {trial.outcome}, {format_plural(trial.kernels, 'kernel')}"
        for decided in trial.decisions:
            said = (say_decided(decided), "bold green")
            lines += page.wrap(said, outcome, indent=2, hang=2)
    return lines


def _format_rest(document: DecisionsDocument) -> str:
    return "" if document.complete else ", not all tried: --runs"


def say_decided(decided: Decided) -> str:
    """Returns `schedule 1: REDUCE 5 (8,), file:12, forced to be a buffer`."""
    shape, line = format_known(" {}", format_shape(decided.shape)), format_known(", {}", decided.line)
    if not decided.realized:
        what = "let go"
    elif decided.kept:
        what = "forced to be a buffer"
    else:
        what = "forced to be a realize point (its buffer is removed again)"
    return f"schedule {decided.schedule}: {decided.op} {decided.node}{shape}{line}, {what}"


def _format_tried(page: Page, document: DecisionsDocument) -> list[Text]:
    lines = [page.text("tried", "dim")]
    for trial in document.tried:
        kernels = (f"  {format_plural(trial.kernels, 'kernel')}", "dim")
        lines += page.wrap((trial.outcome, "bold"), f"  {_name_trial(trial)}", kernels, indent=2, hang=3)
    return lines


def _name_trial(trial: DecisionTrial) -> str:
    if not trial.decisions:
        return "as it is"
    parts: list[str] = []
    for what, realized in (("forced", True), ("let go", False)):
        names = [f"{decided.op} {decided.node}" for decided in trial.decisions if decided.realized == realized]
        if names:
            parts.append(f"{what}: {join_first(names, _MOST_LISTED)}")
    return "; ".join(parts)
