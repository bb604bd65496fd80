"""What runs each time, and what only in the slow lane."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tool import wait_until


def one_of(values: Iterable[Any], step: int) -> list[Any]:
    """Returns parameters of a test of which every `step`th is in every run, and the others are in the slow lane."""
    parameters = [value if isinstance(value, tuple) else (value,) for value in values]
    return [
        pytest.param(*one, marks=() if number % step == 0 else pytest.mark.slow)
        for number, one in enumerate(parameters)
    ]


def make_once(factory: pytest.TempPathFactory, worker_id: str, name: str, make: Callable[[Path], object]) -> Path:
    """Returns a folder that `make` has filled. Only the first worker of pytest-xdist that asks calls it."""
    shared = factory.getbasetemp() if worker_id == "master" else factory.getbasetemp().parent
    folder, done = shared / name, shared / f"{name}-done"
    try:
        folder.mkdir()
    except FileExistsError:
        wait_until(done.exists, "the other worker did not finish")
    else:
        try:
            make(folder)
        finally:
            done.touch()
    return folder
