"""Which node of the Capture a UOp of a followed schedule stands for. Runs in the child."""

from __future__ import annotations

from typing import Any

from vmapdbg.child.failures.known_nodes import PassNodes
from vmapdbg.child.follow.collectors import FollowedCall


def find_nodes(passed: Any, one: FollowedCall) -> PassNodes:
    """Returns what is known of the nodes of a schedule; `passed` is the record of its pass, None: there is none."""
    if passed is None:
        return PassNodes(one.schedule, {}, {}, {}, [])
    if hasattr(passed, "find_ids"):
        return PassNodes(one.schedule, passed.find_ids(), passed.buffers, {}, [])
    from vmapdbg.child.capture.observed_view import ObservedView

    return PassNodes(one.schedule, ObservedView(passed).ids, passed.held, dict(one.origin), [])
