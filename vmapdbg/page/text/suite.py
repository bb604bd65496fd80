"""The diff of two saved runs as text: what costs most first."""

from collections.abc import Iterator, Sequence

from rich.console import Console

from vmapdbg.model.vocabulary import SuiteChangeKind
from vmapdbg.model.wording import format_known, format_plural
from vmapdbg.page.format import format_seconds, join_change
from vmapdbg.page.text.layout import AFTER, BEFORE, Page, Piece
from vmapdbg.page.text.run import add_sides
from vmapdbg.suite.compare import SuiteDiff, SuiteGroup

_MOST_GROUPS = 12
_MOST_TESTS = 3
_NOTE = "Costs are estimates that rank the changes: ops, bytes and launches on a made-up machine."
_NAMES: dict[SuiteChangeKind, str] = {
    "fused": "{before} fused into {group.kernels_after} ({group.form})",
    "split": "{before} split into {group.kernels_after} ({group.form})",
    "regrouped": "{before} regrouped into {group.kernels_after} ({group.form})",
    "kernel-gone": "a kernel is gone ({gone})",
    "kernel-new": "a new kernel ({new})",
    "schedule-gone": "a schedule of {before} is gone",
    "schedule-new": "a new schedule of {after}",
    "more-bytes": "more bytes moved",
    "fewer-bytes": "fewer bytes moved",
    "more-local-memory": "more LOCAL memory",
    "less-local-memory": "less LOCAL memory",
    "other-launch-dimensions": "same work, other launch dimensions",
    "other-source": "source changed, same work",
    "other-order": "the same kernels in another order",
}
"""The sentences for kinds; the words of the other kinds are sentences, without their hyphens."""


def name_change(group: SuiteGroup) -> str:
    """Returns what a change is: `3 kernels fused into 1 (2 r, E -> r)`, `more ops (x1.8)`."""
    gone, _, new = group.form.partition(" -> ")
    before, after = format_plural(group.kernels_before, "kernel"), format_plural(group.kernels_after, "kernel")
    form = _NAMES.get(group.kind, group.kind.replace("-", " "))
    name = form.format(group=group, gone=gone, new=new, before=before, after=after)
    ratios = dict.fromkeys(f"x{ratio:.3g}" for ratio in group.ratios)
    return name + format_known(" ({})", " to ".join(ratios))


def explain_causes(group: SuiteGroup) -> Iterator[str]:
    """Yields sentences about the realize points that are gone or new, with their rules."""
    for sign, what in (("-", "no longer realized"), ("+", "realized now")):
        causes = [cause[1:].partition(": ") for cause in group.causes if cause.startswith(sign)]
        # `-MUL: ending-ranges` becomes `MUL (ending-ranges)`
        if said := [op + format_known(" ({})", reason) for op, _, reason in causes]:
            yield f"{what}: {', '.join(said)}"


def print_suite(diff: SuiteDiff, console: Console, *, show_all: bool = False) -> None:
    """Prints the verdict, the two runs, and the changes that cost most; with `show_all` every test and every change."""
    page = Page(console, show_all=show_all)
    _add_head(page, diff)
    # the largest change of cost first
    ranked = sorted(diff.groups, key=lambda group: -abs(group.added))
    for title, style, sign in (("Costs more", BEFORE, 1), ("Costs the same", "", 0), ("Costs less", AFTER, -1)):
        groups = [group for group in ranked if (group.added > 0) - (group.added < 0) == sign]
        if groups:
            page.head(title, format_plural(len(groups), "change"))
        for group in page.first(groups, _MOST_GROUPS, "... {} more: --all shows them", noun="smaller change"):
            _add_group(page, group, style)
    for tests, where in ((diff.only_before, "only before"), (diff.only_after, "only after")):
        if tests:
            page.head(f"Tests {where}", page.text(_name_tests(page, tests, _MOST_TESTS)))
    if diff.groups:
        page.add((_NOTE, "dim"), gap=True)
        command = f"vmapdbg diff {diff.before.folder} {diff.after.folder} --test '{diff.groups[0].example.test}'"
        page.add((f"One test in full: {command}", "dim"))
    page.print()


def _add_head(page: Page, diff: SuiteDiff) -> None:
    before, after, both = diff.before, diff.after, diff.unchanged + len(diff.changed)
    said, style = f"{len(diff.changed):,} of {format_plural(both, 'test')} changed", "bold"
    if not both:
        said = "no test is in both runs"
    elif diff.is_empty:
        said = f"no kernel changed in {format_plural(both, 'test')}"
    if diff.is_empty and diff.unchanged:
        style = "bold green"
    verdict: list[Piece] = [(said, style)]
    if before.kernels != after.kernels:
        verdict += [", kernels ", page.change(f"{before.kernels:,}", f"{after.kernels:,}")]
    if before.cost != after.cost:
        verdict += [", cost ", page.compare(before.cost, after.cost, _format_cost)]
    page.add(*verdict)
    add_sides(page, before, after)
    counts = [f"{both:,} in both: {diff.unchanged:,} unchanged, {len(diff.changed):,} changed"]
    named = {"only before": diff.only_before, "only after": diff.only_after, "left out (damaged files)": diff.left_out}
    counts += [f"{len(tests):,} {where}" for where, tests in named.items() if tests]
    page.add(("tests   ", "dim"), ", ".join(counts), hang=8)
    page.add_each(_list_troubles(diff), "yellow", hang=3)


def _format_cost(nanoseconds: int) -> str:
    return format_seconds(nanoseconds / 1e9)


def _list_troubles(diff: SuiteDiff) -> Iterator[str]:
    for side in (diff.before, diff.after):
        if side.status is None:
            yield f"!! {side.folder}: its run did not end, tests may be missing or have too few schedules"
        if side.failed:
            failed = format_plural(side.failed, "schedule")
            yield f"!! {side.folder}: {failed} could not be rendered for {side.target}, and were left out"
    yield from map("!! damaged: {}".format, diff.damaged)


def _add_group(page: Page, group: SuiteGroup, style: str) -> None:
    cost, example, found = "same", group.example, "once"
    if group.added:
        sign = "+" if group.added > 0 else "-"
        cost = f"{sign}{_format_cost(abs(group.added))}"
    if group.count > 1:
        found = f"{group.count:,} times in {format_plural(len(group.tests), 'test')}"
    page.add((f"{cost:>9}", style), "  ", (name_change(group), "bold"), f"  {found}", hang=13)
    page.add_each([*explain_causes(group), _name_tests(page, group.tests, 1)], indent=13)
    kernels = join_change(", ".join(example.before) or "none", ", ".join(example.after) or "none")
    page.add((f"e.g. {format_known('{}: ', example.line)}{kernels}", "dim"), indent=13)


def _name_tests(page: Page, tests: Sequence[str], most: int) -> str:
    """Returns `test_ops.py::TestOps::test_softmax and 39 others`, or all tests if the page shows everything."""
    if page.show_all or len(tests) <= most:
        return ", ".join(tests)
    return f"{', '.join(tests[:most])} and {format_plural(len(tests) - most, 'other')}"
