"""Which kernels of a TinyJit stock tinygrad may put into one graph."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tinygrad_overlay._state import process
from tinygrad_overlay.engine import jit


def test_only_steps_of_an_outer_scope_run_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph has one value for each variable. Kernels without such a variable lose no graph."""

    def batch(items: list[Any], *_: Any) -> list[Any]:
        return ["+".join(item.name for item in items)]

    monkeypatch.setattr(jit, "stock_apply_graph_to_jit", batch)
    monkeypatch.setattr(process, "outer_variables", {"step"})
    fixed: list[dict[str, int]] = [{}, {"rows": 3}, {"step": 0}, {"step": 1, "rows": 3}, {}]
    a, b, c, d, e = (SimpleNamespace(name=name, fixedvars=one) for name, one in zip("abcde", fixed, strict=True))
    items: Any = [a, b, c, d, e]
    assert jit.apply_graph_to_jit(items, [], {}) == ["a+b", c, d, "e"]
