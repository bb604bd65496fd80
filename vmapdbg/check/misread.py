"""Tells from values alone whether a kernel read a right buffer at the wrong steps of its scope."""

from __future__ import annotations

from collections.abc import Sequence

from vmapdbg.check.compare import Tolerance, is_close
from vmapdbg.check.numbers import Numbers

MOST_COMPARED = 4_000_000
"""The most elements, those of all steps together, that are looked at."""


def find_steps_read(
    got: Numbers, right: Numbers, by_step: Sequence[Numbers], tolerance: Tolerance
) -> dict[int, int] | None:
    """Returns which step of a buffer each step of its scope read, for those that read another one's than their own.

    `got` is the wrong value, `right` what it should be, and `by_step[j]` what it is where every step reads step j. None
    where no such reading gives `got`: where a wrong element is not that of one step alone, where it is that of no
    step, or where the elements of one step were read at different ones.
    """
    if len(got) * len(by_step) > MOST_COMPARED:
        return None
    steps = range(len(by_step))
    read: dict[int, set[int]] = {}
    for place, (ours, theirs) in enumerate(zip(got, right, strict=True)):
        own = [k for k in steps if is_close(by_step[k][place], theirs, tolerance)]
        if len(own) != 1:
            # the same whatever is read, or made of many steps
            if not is_close(ours, theirs, tolerance):
                return None
            continue
        found = {j for j in steps if is_close(by_step[j][place], ours, tolerance)}
        read[own[0]] = read.get(own[0], found) & found
        if not read[own[0]]:
            return None
    wrong = {step: min(found) for step, found in sorted(read.items()) if step not in found}
    return wrong or None
