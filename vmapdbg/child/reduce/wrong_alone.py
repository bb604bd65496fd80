"""Finds what is wrong with a graph with any patches: for `bisect --reduce` if no set of patches makes a difference.
Runs in the reducer."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vmapdbg.child.compare.reference_values import ReferenceValues
from vmapdbg.child.evidence.packer import CannotPack, Packer, find_variables
from vmapdbg.child.listen.values_and_times import sample_values
from vmapdbg.child.memory import read_buffer
from vmapdbg.child.reduce.worker import RUNS, GraphTrial
from vmapdbg.diff.values import compare_output
from vmapdbg.model.capture import Output
from vmapdbg.values.numbers import Array

UOp = Any


VALUES = "values"


def find_fault(trial: GraphTrial, roots: Sequence[UOp], wanted: Any = None) -> Any:
    """Returns the fault that a smaller graph must also show: how it ended and where, or `values` if it runs and its
    values differ from the numpy reference. None if it is right or unknown, or another fault is `wanted`."""
    if trial.end != RUNS:
        return trial.end.partition(":")[0], trial.raised_at
    if wanted not in (None, VALUES):
        return None
    # a trial reads buffers; a permuted or expanded value shares the buffer of its base
    right = find_right([root.base for root in roots])
    if len(right) != len(trial.values):
        return None
    if any(map(_differs, trial.values, trial.sizes, right)):
        return VALUES
    return None


def _differs(got: Output | None, size: int, right: tuple[Output, int] | None) -> bool:
    """Tells whether a buffer of `size` elements has a wrong value. False if it does not have every element."""
    if got is None or right is None:
        return False
    output, terms = right
    if size != math.prod(output.shape):
        return False
    return compare_output(0, replace(got, shape=output.shape), output, terms).status == "different"


def find_right(roots: Sequence[UOp]) -> list[tuple[Output, int] | None]:
    """Returns for each root the reference value and the number of roundings; None if it is unknown or undefined. Empty
    if the graph cannot be packed."""
    contents: dict[str, bytes] = {}

    def keep(u: UOp) -> tuple[str, ...]:
        name = str(len(contents))
        contents[name] = read_buffer(u.buffer)
        return (name,)

    first, *others = roots
    packer = Packer(keep, find_variables(first.sink(*others).toposort()))
    try:
        packer.graph.roots = [packer.pack(root) for root in roots]
    except CannotPack:
        return []
    values = ReferenceValues(packer.graph, contents.__getitem__)
    found = values.evaluate(packer.graph.roots)
    return [_make_output(values, slot, array) for slot, array in zip(packer.graph.roots, found, strict=True)]


def _make_output(values: ReferenceValues, slot: int, array: Array | str) -> tuple[Output, int] | None:
    if isinstance(array, str) or values.undefined_elements(slot) is not None:
        return None
    digest = hashlib.sha256(array.data).hexdigest()
    output = Output(array.shape, array.dtype, digest, sample_values(array.data, array.dtype))
    return output, values.count_roundings(slot)
