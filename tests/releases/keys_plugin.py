"""A pytest plugin for tests of tinygrad itself: writes the key of each kernel that they schedule, observed or not.

    KEYS_OUTPUT=keys.json [KEYS_OBSERVE=1] python -m pytest -p keys_plugin test_schedule.py

With `KEYS_OBSERVE` it also counts what observing leaves without an explanation.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from vmapdbg.child.listen.hooks import start
from vmapdbg.child.listen.recorder import Recorder
from vmapdbg.child.listen.releases import list_launches, schedule_module

keys: dict[str, list[str]] = {}
counts: Counter[str] = Counter()


class Checked(Recorder):
    """Looks at each schedule when it is made, and lets go of it."""

    def schedule_created(self, graph: Any, created: Any) -> None:
        passed = None if self.current is None else self.current.record
        super().schedule_created(graph, created)
        if passed is not None:
            self.count(passed)
        self.forget()

    def count(self, passed: Any) -> None:
        from vmapdbg.child.capture.reasons import UNKNOWN, explain_realized
        from vmapdbg.child.capture.view import PassView

        view = PassView(passed)
        counts["schedules"] += 1
        for node in passed.realized:
            realized = explain_realized(view, node)
            counts["realized"] += 1
            counts["realized without a reason"] += realized is None
            counts["decided-at"] += realized is not None and realized.reasons[0].rule == UNKNOWN
        for kernel in passed.kernels:
            counts["kernels"] += 1
            counts["kernels without a node"] += kernel.node is None


observer: Checked | None = None


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    global observer
    if "KEYS_OBSERVE" in os.environ:
        observer = Checked()
        start(recorder=observer)


def pytest_collection_finish() -> None:
    """tinygrad is imported now."""
    module = schedule_module()
    create = module.create_schedule

    def watched(*args: Any, **kwargs: Any) -> Any:
        created = create(*args, **kwargs)
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
        keys.setdefault(test, []).extend(kernel.ast.key.hex() for kernel in list_launches(created))
        return created

    module.create_schedule = watched


def pytest_sessionfinish() -> None:
    lost = [] if observer is None else observer.missing
    out = {"keys": keys, "counts": dict(counts), "missing": lost}
    Path(os.environ["KEYS_OUTPUT"]).write_text(json.dumps(out), encoding="utf-8")
