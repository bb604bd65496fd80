"""Prints what `bisect` found: the outcomes, the sets of patches that decide between them, and what was tried."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from vmapdbg.bisect.outcome import Outcome
from vmapdbg.bisect.search import Found, Search
from vmapdbg.install.patches import Patches, spell_patches
from vmapdbg.model.wording import format_plural
from vmapdbg.page.text.layout import Page, Part


def print_bisect(snippet: str, kind: str, search: Search, outcomes: Sequence[Outcome], console: Console) -> None:
    """Prints the result of a search by `kind` (values, kernels, findings, crash)."""
    page = Page(console)
    counts = f"{format_plural(len(outcomes), 'outcome')} in {format_plural(len(search.outcomes), 'run')}"
    lines = page.wrap((snippet, "bold"), f"  {counts}, by {kind}", hang=2)
    for outcome in outcomes:
        count = sum(name == outcome.name for name in search.outcomes.values())
        runs = (f"({format_plural(count, 'run')})", "dim")
        lines += page.wrap((outcome.name, "bold"), f"  {outcome.summary} ", runs, indent=2, hang=3)
    if search.is_uniform:
        lines += page.wrap(("no set of patches that was tried changes the outcome", "bold"), indent=2, hang=2)
    else:
        whole, empty = search.outcomes[search.given], search.outcomes[frozenset()]
        lines += _format_found(page, f"taken away, changes {whole}", search, search.removed, away=True)
        lines += _format_found(page, f"alone, changes {empty} (no patch)", search, search.added)
        if whole != empty:
            lines += _format_found(page, f"alone, enough for {whole}", search, search.enough)
    page.show([*lines, Text(), *_format_tried(page, search)])


def _format_found(page: Page, label: str, search: Search, found: Found[str], away: bool = False) -> list[Text]:
    parts: list[Part] = [f"{label}: "]
    for position, patches in enumerate(found.sets):
        tried = patches
        if away:
            tried = search.given - patches
        if position:
            parts.append(" or ")
        parts += [(format_set(patches), "bold green"), f" -> {search.outcomes[tried]}"]
    if not found.sets:
        parts.append(("nothing", "bold"))
    return page.wrap(*parts, (f"  ({_describe_proof(found)})", "dim"), indent=2, hang=2)


def _describe_proof(found: Found[str]) -> str:
    if not found.exact:
        return f"all sets of up to {max(found.size, 0)} tried, then by halves: no part of it does"
    if not found.sets:
        return "all sets tried"
    return f"all sets of up to {found.size} tried"


def format_set(patches: Patches) -> str:
    return ", ".join(sorted(patches)) or "none"


def _format_tried(page: Page, search: Search) -> list[Text]:
    lines = [page.text("tried", "dim")]
    for patches, name in search.outcomes.items():
        spec = spell_patches(patches).replace(",", ", ")
        parts: list[Part] = [(name, "bold"), f"  {spec}"]
        if patches == search.given:
            parts.append(("  (as given)", "dim"))
        lines += page.wrap(*parts, indent=2, hang=3)
    return lines
