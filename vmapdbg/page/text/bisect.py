"""Prints what `bisect` found: the outcomes, what decides between them, and what was tried."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from vmapdbg.install.patches import spell_patches
from vmapdbg.model.wording import format_known, format_plural, join_first
from vmapdbg.page.documents import BisectDocument, Decided, DecisionsDocument, DecisionTrial, History
from vmapdbg.page.format import format_measured, format_shape
from vmapdbg.page.text.layout import Page, Piece
from vmapdbg.page.text.run import print_diff

_MOST_LISTED = 6


def _add_runs(page: Page, runs: Iterable[tuple[str, str, str]], *head: Piece) -> None:
    """Adds a head, then a line for each run or outcome: the name of the outcome, what it is, and a note."""
    page.add(*head)
    for name, about, note in runs:
        page.add((name, "bold"), f"  {about}", (note, "dim"), indent=2, hang=3)


# *** sets of patches


def print_bisect(document: BisectDocument, console: Console) -> None:
    """Prints the sets of patches that change the outcome, and all sets that were tried."""
    page = Page(console)
    outcomes = {frozenset(trial.patches): trial.outcome for trial in document.tried}
    given, names = frozenset(document.given), list(outcomes.values())
    counts = f"{format_plural(len(document.outcomes), 'outcome')} in {format_plural(len(names), 'run')}"
    known = [(one.name, one.summary, f" ({format_plural(names.count(one.name), 'run')})") for one in document.outcomes]
    _add_runs(page, known, (document.snippet, "bold"), f"  {counts}, by {document.on}")
    whole, empty = outcomes[given], outcomes[frozenset()]
    found = {f"taken away, changes {whole}": document.removed, f"alone, changes {empty} (no patch)": document.added}
    if whole != empty:
        found[f"alone, enough for {whole}"] = document.enough
    if len(set(names)) == 1:
        found = {}
        page.add(("no set of patches that was tried changes the outcome", "bold"), indent=2)
    for label, sets in found.items():
        parts: list[Piece] = [] if sets.sets else [("nothing", "bold")]
        for patches in sets.sets:
            tried = given.difference(patches) if sets is document.removed else frozenset(patches)
            parts += [" or "] * bool(parts)
            parts += [(", ".join(patches) or "none", "bold green"), f" -> {outcomes[tried]}"]
        proof = f"all sets of up to {sets.size} tried"
        if not sets.exact:
            proof = "found by halving: no smaller part of it changes the outcome"
        page.add(f"{label}: ", *parts, (f"  ({proof})", "dim"), indent=2)
    page.add()
    tried = [
        (name, spell_patches(patches).replace(",", ", "), "  (as given)" * (patches == given))
        for patches, name in outcomes.items()
    ]
    _add_runs(page, tried, ("tried", "dim"))
    page.print()


# *** commits


def print_history(history: History, console: Console) -> None:
    """Prints the outcomes, the commits that were tried, the commit that was searched for, and its schedule diff."""
    page = Page(console)
    runs = f"{format_plural(len(history.tried), 'run')} of {format_plural(history.commits + 1, 'commit')}"
    outcomes = [(outcome.name, outcome.summary, "") for outcome in history.outcomes]
    head = f"{runs}, by {history.by}"
    if history.floor is not None:
        noise = format_measured(history.by, history.floor)
        head = f"{len(history.tried)} of {history.commits + 1} commits, by {history.by}, BEAM held at 0, noise {noise}"
    _add_runs(page, outcomes, (history.snippet, "bold"), f"  {head}")
    tried: list[tuple[str, str, str]] = []
    for trial in history.tried:
        number = "" if trial.number is None else f"  {format_measured(history.by, trial.number)}"
        tried.append((trial.outcome or "-", trial.commit, number))
    page.add()
    _add_runs(page, tried, ("tried, the oldest first", "dim"))
    if any(trial.outcome is None for trial in history.tried):
        page.add(("- could not be run", "dim"), indent=2)
    page.add()
    if not history.suspects:
        page.add((_explain_nobody(history), "bold"))
    elif len(history.suspects) == 1:
        page.add("the first commit with another outcome: ", (history.suspects[0], "bold green"))
    else:
        page.add("one of these changed the outcome; those before the last cannot be run:")
        page.add_each(history.suspects, "bold green", indent=2)
    page.print()
    if history.changes is not None:
        print_diff(history.changes, console)


def _explain_nobody(history: History) -> str:
    good, bad = history.tried[0].number, history.tried[-1].number
    if history.floor is None or good is None or bad is None:
        return "no commit changed the outcome"
    first, last = format_measured(history.by, good), format_measured(history.by, bad)
    if good == bad:
        return f"no commit: {first} at both ends"
    ends = f"{first} at the first, {last} at the last"
    if abs(good - bad) <= history.floor:
        return f"no commit: within noise ({ends})"
    return f"no single commit: each step is within noise ({ends})"


# *** decisions


def print_decisions(document: DecisionsDocument, console: Console) -> None:
    """Prints the outcomes, the decisions that were found, all that was tried, and the schedule diff."""
    page = Page(console)
    names = [trial.outcome for trial in document.tried]
    outcomes: list[tuple[str, str, str]] = []
    for outcome in document.outcomes:
        roles = [format_plural(names.count(outcome.name), "run")]
        if outcome.name == document.given:
            roles.insert(0, "as it is")
        if outcome.name == document.right:
            roles.insert(0, f"the right outcome: {document.reference}")
        outcomes.append((outcome.name, outcome.summary, f"  ({'; '.join(roles)})"))
    counts = f"  {format_plural(len(names), 'run')}, by {document.by}"
    _add_runs(page, outcomes, (document.snippet, "bold"), counts)
    page.add()
    _print_found(page, document)
    kernels = [f"  {format_plural(trial.kernels, 'kernel')}" for trial in document.tried]
    page.add()
    _add_runs(page, zip(names, map(_name_trial, document.tried), kernels, strict=True), ("tried", "dim"))
    if document.changes is not None:
        page.add()
        page.add(("what the first of them changes", "dim"))
    page.print()
    if document.changes is not None:
        print_diff(document.changes, console)


def _print_found(page: Page, document: DecisionsDocument) -> None:
    if document.given == document.right:
        page.add(("the outcome is right already: there is nothing to fix", "bold"))
        return
    does, rest = "makes it right", "" if document.complete else ", not all tried: --runs"
    if document.right is None:
        does = "changes it"
    found = f"each of these {len(document.found)} decisions {does}, the one with the fewest kernels first"
    if not document.found:
        found = f"no decision that was tried {does}"
    elif len(document.found[0].decisions) > 1:
        end = ": fewer may be enough" if not document.complete else ", and no part of them does"
        found = f"these {len(document.found[0].decisions)} decisions together make it right{end}"
    elif len(document.found) == 1:
        found = f"this one decision {does}"
    page.add((found, "bold"), f"  ({format_plural(document.candidates, 'node')} to force{rest})")
    for trial in document.found:
        outcome = f" -> {trial.outcome}, {format_plural(trial.kernels, 'kernel')}"
        for decided in trial.decisions:
            page.add((describe_decided(decided), "bold green"), outcome, indent=2)


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
