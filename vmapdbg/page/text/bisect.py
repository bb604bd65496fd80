"""Prints what `bisect` found: the outcomes, what decides between them, and what was tried."""

from collections.abc import Iterable, Mapping

from rich.console import Console

from vmapdbg.diff.result import CaptureDiff
from vmapdbg.install.patches import spell_patches
from vmapdbg.model.wording import format_known, format_plural, join_first
from vmapdbg.page.documents import BisectDocument, Decided, DecisionsDocument, DecisionTrial, History
from vmapdbg.page.format import format_measured, format_shape
from vmapdbg.page.text.layout import Page, Piece
from vmapdbg.page.text.run import print_diff

_MOST_LISTED = 6


def _begin_page(
    document: BisectDocument | History | DecisionsDocument, head: str, notes: Mapping[str, str], console: Console
) -> Page:
    """Returns a page with the outcomes, each with what it is and a note."""
    page = Page(console)
    page.add((document.snippet, "bold"), f"  {head}")
    _add_runs(page, ((one.name, one.summary, notes.get(one.name, "")) for one in document.outcomes))
    return page


def _add_runs(page: Page, runs: Iterable[tuple[str, str, str]]) -> None:
    """Adds a line for each run or outcome: the name of the outcome, what it is, and a note."""
    for name, about, note in runs:
        page.add((name, "bold"), f"  {about}", (format_known("  {}", note), "dim"), indent=2, hang=3)


def _end_page(
    page: Page, tried: Iterable[tuple[str, str, str]], changes: CaptureDiff | None = None, title: str = ""
) -> None:
    """Adds all that was tried, and with a title what the decision or commit that was found changes."""
    page.add(("tried", "dim"), gap=True)
    _add_runs(page, tried)
    if changes is not None:
        page.add((title, "dim"), gap=True)
    page.print()
    if changes is not None:
        print_diff(changes, page.console)


def print_bisect(document: BisectDocument, console: Console) -> None:
    """Prints the sets of patches that change the outcome, and all sets that were tried."""
    outcomes = {frozenset(trial.patches): trial.outcome for trial in document.tried}
    given, names = frozenset(document.given), list(outcomes.values())
    counts = f"{format_plural(len(document.outcomes), 'outcome')} in {format_plural(len(names), 'run')}"
    notes = {name: f"({format_plural(names.count(name), 'run')})" for name in names}
    page = _begin_page(document, f"{counts}, by {document.on}", notes, console)
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
            made = given.difference(patches) if sets is document.removed else frozenset(patches)
            parts += [" or "] * bool(parts)
            parts += [(", ".join(patches) or "none", "bold green"), f" -> {outcomes[made]}"]
        proof = f"all sets of up to {sets.size} tried"
        if not sets.exact:
            proof = "found by halving: no smaller part of it changes the outcome"
        page.add(f"{label}: ", *parts, (f"  ({proof})", "dim"), indent=2)
    tried = [
        (name, spell_patches(patches).replace(",", ", "), "(as given)" * (patches == given))
        for patches, name in outcomes.items()
    ]
    _end_page(page, tried)


def print_history(history: History, console: Console) -> None:
    """Prints the outcomes, the commit that was searched for, the commits that were tried, and its schedule diff."""
    numbers = {one.commit: format_measured(history.by, one.number) for one in history.tried if one.number is not None}
    head = f"{len(history.tried)} of {history.commits + 1} commits, by {history.by}"
    if history.floor is not None:
        head += f", BEAM held at 0, noise {format_measured(history.by, history.floor)}"
    page = _begin_page(history, head, {}, console)
    page.add()
    if not history.suspects:
        page.add((_explain_nobody(history), "bold"))
    elif len(history.suspects) == 1:
        page.add("the first commit with another outcome: ", (history.suspects[0], "bold green"))
    else:
        page.add("one of these changed the outcome; those before the last cannot be run:")
        page.add_each(history.suspects, "bold green", indent=2)
    tried = [
        (one.outcome or "-", one.commit, numbers.get(one.commit, "" if one.outcome else "could not be run"))
        for one in history.tried
    ]
    _end_page(page, tried, history.changes, "what changed there")


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


def print_decisions(document: DecisionsDocument, console: Console) -> None:
    """Prints the outcomes, the decisions that were found, all that was tried, and the schedule diff."""
    names = [trial.outcome for trial in document.tried]
    notes: dict[str, str] = {}
    for outcome in document.outcomes:
        roles = [f"the right outcome: {document.reference}"] if outcome.name == document.right else []
        roles += ["as it is"] if outcome.name == document.given else []
        notes[outcome.name] = f"({'; '.join([*roles, format_plural(names.count(outcome.name), 'run')])})"
    page = _begin_page(document, f"{format_plural(len(names), 'run')}, by {document.by}", notes, console)
    page.add()
    _add_found(page, document)
    tried = [(one.outcome, _name_trial(one), format_plural(one.kernels, "kernel")) for one in document.tried]
    _end_page(page, tried, document.changes, "what the first of them changes")


def _add_found(page: Page, document: DecisionsDocument) -> None:
    if document.given == document.right:
        page.add(("the outcome is right already: there is nothing to fix", "bold"))
        return
    does = "changes it" if document.right is None else "makes it right"
    rest = "" if document.complete else ", not all tried: --runs"
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
    names = {"forced": list[str](), "let go": list[str]()}
    for decided in trial.decisions:
        names["forced" if decided.realized else "let go"].append(f"{decided.op} {decided.node}")
    parts = [f"{what}: {join_first(nodes, _MOST_LISTED)}" for what, nodes in names.items() if nodes]
    return "; ".join(parts) or "as it is"
