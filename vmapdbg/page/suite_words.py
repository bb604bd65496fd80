"""Words for the diff of two saved runs: what a change is called, what it costs, which tests have it."""

from __future__ import annotations

from collections.abc import Sequence

from vmapdbg.model.vocabulary import SuiteChangeKind
from vmapdbg.model.wording import cut_end, format_known, format_plural, shorten_commit
from vmapdbg.page.format import label_patches
from vmapdbg.suite.result import SuiteDiff, SuiteGroup, SuiteSide

_MOST_PROGRAM = 60
_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))
_NAMES: dict[SuiteChangeKind, str] = {
    "more-launches": "more launches",
    "fewer-launches": "fewer launches",
    "more-ops": "more ops",
    "fewer-ops": "fewer ops",
    "more-bytes": "more bytes moved",
    "fewer-bytes": "fewer bytes moved",
    "fewer-threads": "fewer threads",
    "more-threads": "more threads",
    "more-local-memory": "more LOCAL memory",
    "less-local-memory": "less LOCAL memory",
    "other-launch-dimensions": "same work, other launch dimensions",
    "other-source": "source changed, same work",
    "other-order": "the same kernels in another order",
    "fewer-copies": "fewer copies",
    "more-copies": "more copies",
}


def name_change(group: SuiteGroup) -> str:
    """Returns what a change is: `3 kernels fused into 1 (2 r, E -> r)`, `more ops (x1.8)`."""
    before = format_plural(group.kernels_before, "kernel")
    after = format_plural(group.kernels_after, "kernel")
    whole: dict[SuiteChangeKind, str] = {
        "fused": f"{before} fused into {group.kernels_after} ({group.form})",
        "split": f"{before} split into {group.kernels_after} ({group.form})",
        "regrouped": f"{before} regrouped into {group.kernels_after} ({group.form})",
        "kernel-gone": f"a kernel is gone ({group.form.partition(' -> ')[0]})",
        "kernel-new": f"a new kernel ({group.form.partition(' -> ')[2]})",
        "schedule-gone": f"a schedule of {before} is gone",
        "schedule-new": f"a new schedule of {after}",
    }
    if group.kind in whole:
        return whole[group.kind]
    # a kind that a newer vmapdbg knows is its own name
    return _NAMES.get(group.kind, group.kind) + _format_ratios(group.ratios)


def _format_ratios(ratios: Sequence[float]) -> str:
    if not ratios:
        return ""
    low, high = f"x{ratios[0]:.3g}", f"x{ratios[-1]:.3g}"
    return f" ({low})" if low == high else f" ({low} to {high})"


def explain_causes(group: SuiteGroup) -> list[str]:
    """Returns which realize points are gone, and which are new, with what had decided."""
    gone = [_bracket(cause) for cause in group.causes if cause.startswith("-")]
    new = [_bracket(cause) for cause in group.causes if cause.startswith("+")]
    sentences: list[str] = []
    if gone:
        sentences.append(f"no longer realized: {', '.join(gone)}")
    if new:
        sentences.append(f"realized now: {', '.join(new)}")
    return sentences


def _bracket(cause: str) -> str:
    """`-MUL: ending-ranges` is written `MUL (ending-ranges)`."""
    op, _, reason = cause[1:].partition(": ")
    return op + format_known(" ({})", reason)


def format_cost(nanoseconds: int) -> str:
    """Returns a cost: `480 ns`, `15.2 us`, `3.65 ms`."""
    size = next((unit for unit in _UNITS if abs(nanoseconds) >= unit[0]), None)
    if size is None:
        return f"{nanoseconds} ns"
    return f"{nanoseconds / size[0]:.3g} {size[1]}"


def format_added(group: SuiteGroup) -> str:
    """Returns what a change costs more, or less: `+15.2 us`."""
    sign = "+" if group.added > 0 else ""
    return sign + format_cost(group.added)


def count_found(group: SuiteGroup) -> str:
    """Returns `once`, `15 times in 4 tests`."""
    if group.count == 1:
        return "once"
    return f"{group.count:,} times in {format_plural(len(group.tests), 'test')}"


def name_tests(shown: Sequence[str], count: int) -> str:
    """Returns `test_ops.py::TestOps::test_softmax and 39 others`: those that are shown, and how many more there are."""
    names = ", ".join(shown)
    if len(shown) == count:
        return names
    return f"{names} and {format_plural(count - len(shown), 'other')}"


def say_verdict(diff: SuiteDiff) -> str:
    """Returns the verdict in one line."""
    both = diff.unchanged + len(diff.changed)
    if not both:
        return "no test is in both runs"
    if diff.is_empty:
        return f"no kernel changed in {format_plural(both, 'test')}"
    return f"{len(diff.changed):,} of {format_plural(both, 'test')} changed"


def count_tests(diff: SuiteDiff) -> str:
    """Returns how many tests there are on which side."""
    both = diff.unchanged + len(diff.changed)
    parts = [f"{both:,} in both: {diff.unchanged:,} unchanged, {len(diff.changed):,} changed"]
    for tests, where in (
        (diff.only_before, "only before"),
        (diff.only_after, "only after"),
        (diff.left_out, "left out (damaged files)"),
    ):
        if tests:
            parts.append(f"{len(tests):,} {where}")
    return ", ".join(parts)


def describe_side(side: SuiteSide, other: SuiteSide) -> str:
    """Returns what a run is, where it is not as the other one."""
    versions = side.versions
    tinygrad = f"tinygrad {versions.tree or versions.tinygrad}"
    if versions.commit:
        tinygrad += f" ({shorten_commit(versions.commit)})"
    parts = [tinygrad, *label_patches(side.patches, other.patches)]
    if side.program != other.program:
        parts.append(shorten_program(side))
    return f"{side.folder}: {', '.join(parts)}"


def shorten_program(side: SuiteSide) -> str:
    """Returns what was run, at most 60 characters of it."""
    return cut_end(" ".join(side.program), _MOST_PROGRAM)


def list_troubles(diff: SuiteDiff) -> list[str]:
    """Returns what the reader must know of how the runs went."""
    troubles: list[str] = []
    for side in (diff.before, diff.after):
        if side.status is None:
            troubles.append(f"{side.folder}: its run did not end, tests may be missing or have too few schedules")
        if side.failed:
            failed = format_plural(side.failed, "schedule")
            troubles.append(f"{side.folder}: {failed} could not be rendered for {side.target}, and were left out")
    return troubles + [f"damaged: {line}" for line in diff.damaged]
