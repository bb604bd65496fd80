"""What the outputs of a schedule that failed should have been, by the numpy reference."""

from __future__ import annotations

from vmapdbg.check.result import ExpectedOutput
from vmapdbg.child.compare.by_numpy import NumpyValues
from vmapdbg.child.compare.oracle import Read
from vmapdbg.child.evidence.graphs import Evidence
from vmapdbg.values.numbers import Array, decode, make_plain

SHOWN = 8
"""The most elements that are told of one output."""


def find_expected(evidence: Evidence, read: Read) -> tuple[ExpectedOutput, ...]:
    """Returns what each output, and each buffer that is assigned to, should be; one that cannot be computed is left
    out."""
    if evidence.reference is None:
        return ()
    values = NumpyValues(evidence.reference, read, None, {})
    found = values.evaluate(list(values.roots))
    known = [(number, array) for number, array in enumerate(found) if not isinstance(array, str)]
    return tuple(_make_expected(number, array) for number, array in known)


def _make_expected(number: int, array: Array) -> ExpectedOutput:
    first = decode(array)[:SHOWN]
    return ExpectedOutput(number, array.shape, array.dtype, tuple(map(make_plain, first)))
