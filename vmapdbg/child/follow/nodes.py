"""Which node of the Capture a UOp of a followed schedule stands for. Runs in the child."""

from __future__ import annotations

from typing import Any

from vmapdbg.child.capture.view import View
from vmapdbg.child.failures.known_nodes import PassNodes
from vmapdbg.child.follow.collectors import FollowedCall


def find_nodes(passed: Any, one: FollowedCall) -> PassNodes:
    """Returns what is known of the nodes of a schedule; `passed` is the record of its pass, None: there is none."""
    if passed is None:
        return PassNodes(one.schedule, {}, {}, {}, [])
    return PassNodes(one.schedule, View(passed).ids, passed.held, dict(one.origin), [])
