"""What an index chooses, read by numpy as tinygrad reads it: a list of integers is one index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vmapdbg.child.evidence.tensor_calls import choose

SHAPE = (2, 4, 3)
INDICES = {
    "integer": 1,
    "integers": (-1, 0, 2),
    "slice": slice(None, None, -2),
    "axes": (slice(None), [0, 2], slice(1, 2)),
    "list": [1, 0],
    "lists": (slice(None), [[0, 1], [2, 3]], [1, 2]),
    "new axis": (None, 0, ..., 1),
}


@pytest.mark.parametrize("name", INDICES)
def test_an_index_is_that_of_numpy(name: str) -> None:
    index = INDICES[name]
    right = np.zeros(SHAPE, bool)
    right[index] = True
    assert choose(SHAPE, index) == right.tobytes()


@pytest.mark.parametrize("index", [True, (0, object()), [[0, 1], [True, 0]], (slice(0, object()),), (5,), ([],)])
def test_some_names_are_not_followed(index: Any) -> None:
    assert choose(SHAPE, index) is None
    # nor is a size that is not a number
    assert choose((2, object()), 0) is None
