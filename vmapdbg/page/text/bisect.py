"""Prints what `bisect` found: the outcomes, what decides between them, and what was tried."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from vmapdbg.bisect.outcome import NamedOutcome
from vmapdbg.bisect.search import FoundSets, Search
from vmapdbg.install.patches import spell_patches
from vmapdbg.model.wording import format_known, format_plural, join_first
from vmapdbg.page.documents import Decided, DecisionsDocument, DecisionTrial, History
from vmapdbg.page.format import format_shape
from vmapdbg.page.text.layout import Page, Piece
from vmapdbg.page.text.run import print_diff

_MOST_LISTED = 6

# *** sets of patches


def print_bisect(snippet: str, kind: str, search: Search, outcomes: Sequence[NamedOutcome], console: Console) -> None:
    """Prints the result of a search by `kind` (values, kernels, findings, crash)."""
    page = Page(console)
    counts = f"{format_plural(len(outcomes), 'outcome')} in {format_plural(len(search.outcomes), 'run')}"
    page.add((snippet, "bold"), f"  {counts}, by {kind}")
    for outcome in outcomes:
        count = sum(name == outcome.name for name in search.outcomes.values())
        runs = (f"({format_plural(count, 'run')})", "dim")
        page.add((outcome.name, "bold"), f"  {outcome.summary} ", runs, indent=2, hang=3)
    if search.is_uniform:
        page.add(("no set of patches that was tried changes the outcome", "bold"), indent=2)
    else:
        whole, empty = search.outcomes[search.given], search.outcomes[frozenset()]
        _print_sets(page, f"taken away, changes {whole}", search, search.removed, away=True)
        _print_sets(page, f"alone, changes {empty} (no patch)", search, search.added)
        if whole != empty:
            _print_sets(page, f"alone, enough for {whole}", search, search.enough)
    page.add()
    page.add(("tried", "dim"))
    for patches, name in search.outcomes.items():
        given = ("  (as given)" if patches == search.given else "", "dim")
        page.add((name, "bold"), f"  {spell_patches(patches).replace(',', ', ')}", given, indent=2, hang=3)
    page.print()


def _print_sets(page: Page, label: str, search: Search, found: FoundSets, away: bool = False) -> None:
    parts: list[Piece] = [f"{label}: "]
    for position, patches in enumerate(found.sets):
        tried = frozenset(patches)
        if away:
            tried = search.given - tried
        if position:
            parts.append(" or ")
        parts += [(", ".join(patches) or "none", "bold green"), f" -> {search.outcomes[tried]}"]
    if not found.sets:
        parts.append(("nothing", "bold"))
    page.add(*parts, (f"  ({_describe_proof(found)})", "dim"), indent=2)


def _describe_proof(found: FoundSets) -> str:
    if not found.exact:
        tried = f"all sets of up to {found.size} tried, then halves" if found.size > 0 else "found by halving"
        return f"{tried}: no smaller part of it changes the outcome"
    if not found.sets:
        return "all sets tried"
    return f"all sets of up to {found.size} tried"


# *** commits


def print_history(history: History, console: Console) -> None:
    """Prints the outcomes, the commits that were tried, the commit that was searched for, and its schedule diff."""
    page = Page(console)
    counts = f"{format_plural(len(history.tried), 'run')} of {format_plural(history.commits + 1, 'commit')}"
    page.add((history.snippet, "bold"), f"  {counts}, by {history.by}")
    for outcome in history.outcomes:
        page.add((outcome.name, "bold"), f"  {outcome.summary}", indent=2, hang=3)
    page.add()
    page.add(("tried, the oldest first", "dim"))
    for trial in history.tried:
        page.add((trial.outcome or "-", "bold"), f"  {trial.commit}", indent=2, hang=3)
    if any(trial.outcome is None for trial in history.tried):
        page.add(("- could not be run", "dim"), indent=2)
    page.add()
    if not history.suspects:
        page.add(("no commit changed the outcome", "bold"))
    elif len(history.suspects) == 1:
        page.add("the first commit with another outcome: ", (history.suspects[0], "bold green"))
    else:
        page.add("one of these changed the outcome; those before the last cannot be run:")
        for commit in history.suspects:
            page.add((commit, "bold green"), indent=2)
    page.print()
    if history.changes is not None:
        print_diff(history.changes, console)


# *** decisions


def print_decisions(document: DecisionsDocument, console: Console) -> None:
    """Prints the outcomes, the decisions that were found, all that was tried, and the schedule diff."""
    page = Page(console)
    page.add((document.snippet, "bold"), f"  {format_plural(len(document.tried), 'run')}, by {document.by}")
    for outcome in document.outcomes:
        role = (f"  ({_name_role(document, outcome.name)})", "dim")
        page.add((outcome.name, "bold"), f"  {outcome.summary}", role, indent=2, hang=3)
    page.add()
    _print_found(page, document)
    page.add()
    page.add(("tried", "dim"))
    for trial in document.tried:
        kernels = (f"  {format_plural(trial.kernels, 'kernel')}", "dim")
        page.add((trial.outcome, "bold"), f"  {_name_trial(trial)}", kernels, indent=2, hang=3)
    if document.changes is not None:
        page.add()
        page.add(("what the first of them changes", "dim"))
    page.print()
    if document.changes is not None:
        print_diff(document.changes, console)


def _name_role(document: DecisionsDocument, outcome: str) -> str:
    roles: list[str] = []
    if outcome == document.right:
        roles.append(f"the right outcome: {document.reference}")
    if outcome == document.given:
        roles.append("as it is")
    roles.append(format_plural(sum(trial.outcome == outcome for trial in document.tried), "run"))
    return "; ".join(roles)


def _print_found(page: Page, document: DecisionsDocument) -> None:
    if document.given == document.right:
        page.add(("the outcome is right already: there is nothing to fix", "bold"))
        return
    rest = "" if document.complete else ", not all tried: --runs"
    nodes = format_plural(document.candidates, "node")
    page.add((_describe_found(document), "bold"), f"  ({nodes} to force{rest})")
    for trial in document.found:
        outcome = f" -> {trial.outcome}, {format_plural(trial.kernels, 'kernel')}"
        for decided in trial.decisions:
            page.add((describe_decided(decided), "bold green"), outcome, indent=2)


def _describe_found(document: DecisionsDocument) -> str:
    does = "changes it" if document.right is None else "makes it right"
    if not document.found:
        return f"no decision that was tried {does}"
    first = document.found[0]
    if len(first.decisions) > 1:
        together = f"these {len(first.decisions)} decisions together make it right"
        return together + (", and no part of them does" if document.complete else ": fewer may be enough")
    if len(document.found) == 1:
        return f"this one decision {does}"
    return f"each of these {len(document.found)} decisions {does}, the one with the fewest kernels first"


def describe_decided(decided: Decided) -> str:
    """Returns `schedule 1: REDUCE 5 (8,), file:12, forced to be a buffer`."""
    shape, line = format_known(" {}", format_shape(decided.shape)), format_known(", {}", decided.line)
    what = "forced to be a realize point (its buffer is removed again)"
    if not decided.realized:
        what = "let go"
    elif decided.kept:
        what = "forced to be a buffer"
    return f"schedule {decided.schedule}: {decided.op} {decided.node}{shape}{line}, {what}"


def _name_trial(trial: DecisionTrial) -> str:
    if not trial.decisions:
        return "as it is"
    parts: list[str] = []
    for what, realized in (("forced", True), ("let go", False)):
        names = [f"{decided.op} {decided.node}" for decided in trial.decisions if decided.realized == realized]
        if names:
            parts.append(f"{what}: {join_first(names, _MOST_LISTED)}")
    return "; ".join(parts)
