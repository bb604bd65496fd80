"""What an output holds when its kernels have run. Runs in the child."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vmapdbg.reference.evaluate import Evaluator
from vmapdbg.reference.graph import Unknown
from vmapdbg.reference.kinds import load
from vmapdbg.reference.value import Value
from vmapdbg.values.itemsize import ITEMSIZE
from vmapdbg.values.numbers import Array


def find_real_value(call: Any, number: int, read: Callable[[str], bytes]) -> tuple[Value, bool]:
    """Returns what the kernels left in the output of a call, by its number, and whether that is the base of the output:
    else it is the output itself, which may be a view. Raises Unknown."""
    evidence = call.evidence
    if evidence.failed is not None:
        raise Unknown("it did not run to the end")
    if number < len(evidence.values) and evidence.values[number] is not None:
        data = read(evidence.values[number])
        graph = evidence.reference
        node = graph.nodes[graph.roots[number]]
        return Value(load(Array(data, node.dtype, (len(data) // ITEMSIZE[node.dtype],)))), True
    slot = evidence.got_roots.get(number)
    if slot is None:
        raise Unknown("what it holds was not kept")
    value = Evaluator(evidence.got, read).evaluate([slot])[0]
    if isinstance(value, Unknown):
        raise value
    return value, False
