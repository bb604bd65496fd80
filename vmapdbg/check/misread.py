"""Tells from values alone whether a kernel read a right buffer at the wrong steps of its scope."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from vmapdbg.values.close import find_close
from vmapdbg.values.tolerance import Tolerance

MOST_COMPARED = 40_000_000
"""The most comparisons that are made: of each element at each step. About a second of them, and two bytes for each."""


def find_steps_read(
    got: ArrayLike, right: ArrayLike, by_step: Sequence[ArrayLike], tolerance: Tolerance
) -> dict[int, int] | None:
    """Returns which step of a buffer each step of its scope read, for those that read another one's than their own.

    `got` is the wrong value, `right` what it should be, and `by_step[j]` what it is where every step reads step j. None
    where no such reading gives `got`: where a wrong element is not that of one step alone, where it is that of no
    step, or where the elements of one step were read at different ones.
    """
    if np.size(got) * len(by_step) > MOST_COMPARED:
        return None
    # one row a step, one column an element
    is_own = np.array([find_close(value, right, tolerance) for value in by_step])
    is_got = np.array([find_close(value, got, tolerance) for value in by_step])
    # the same whatever is read, or made of many steps
    of_one_step = is_own.sum(axis=0) == 1
    is_right = np.asarray(find_close(got, right, tolerance))
    if not is_right[~of_one_step].all():
        return None
    own = is_own.argmax(axis=0)
    wrong: dict[int, int] = {}
    for step in np.unique(own[of_one_step]):
        fits_all = np.asarray(is_got[:, of_one_step & (own == step)].all(axis=1))
        found = np.flatnonzero(fits_all)
        if not found.size:
            return None
        if not fits_all[step]:
            wrong[int(step)] = int(found[0])
    return wrong or None
