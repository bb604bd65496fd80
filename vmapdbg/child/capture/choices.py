"""The decisions that a job makes in place of the scheduler's own, found in the graph by the ids of a Capture."""

from __future__ import annotations

from collections.abc import Sequence

from vmapdbg.child.capture.view import find_nodes
from vmapdbg.child.listen.records import PassRecord
from vmapdbg.install.job import Choice


def make_choices(choices: Sequence[Choice], passed: PassRecord, schedule: int) -> str | None:
    """Sets the nodes of a pass that are forced and released, before it decides anything.

    Returns a line where the schedule has no such node, with the op that it had: another choice made away with it.
    """
    asked = [choice for choice in choices if choice.schedule == schedule]
    if not asked:
        return None
    nodes = dict(enumerate(find_nodes(passed)))
    known = [(choice, nodes.get(choice.node)) for choice in asked]
    meant = [(choice, node) for choice, node in known if node is not None and node.op.name == choice.op]
    passed.forced = frozenset(node for choice, node in meant if choice.realized)
    passed.released = frozenset(node for choice, node in meant if not choice.realized)
    if len(meant) == len(asked):
        return None
    return f"{len(asked) - len(meant)} of {len(asked)} choices: schedule {schedule} has no such nodes"
