"""Tells whether a kernel read memory at the wrong time: it is run by numpy on what its arguments held at other times of
the schedule, too. Right values prove it. Runs in the oracle."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vmapdbg.check.result import StaleRead
from vmapdbg.child.compare.oracle import Read
from vmapdbg.child.compare.wrong_buffer import REFUSED_BY_NUMPY, WrongBuffer, arrange, describe_refusal, read_arguments
from vmapdbg.child.evidence.graphs import Evidence, KernelRun
from vmapdbg.reference.graph import Unknown
from vmapdbg.reference.kernel import Kernel
from vmapdbg.reference.run_kernel import run_kernel
from vmapdbg.values.numbers import Array

MOST_TRIED = 64
"""So many times a kernel is computed with what its arguments held at other times."""


def find_stale(evidence: Evidence, read: Read, wrong: WrongBuffer) -> tuple[StaleRead, ...]:
    """Returns which arguments a kernel read at a wrong time: with what these held at another time it computes what is
    right. Empty where nothing of that kind makes it right."""
    run = wrong.buffer.run
    assert run.kernel is not None
    kernel = evidence.kernels[run.kernel]
    for chosen in itertools.islice(choose_versions(run), MOST_TRIED):
        names = tuple(run.versions[i][chosen[i]].name if i in chosen else name for i, name in enumerate(run.arguments))
        found = compute(kernel, names, wrong, read)
        if isinstance(found, str) or found[1].any():
            continue
        if wrong.judge(found[0]).status != "wrong":
            return tuple(make_stale_read(evidence, run, argument, version) for argument, version in chosen.items())
    return ()


def choose_versions(run: KernelRun) -> Iterator[dict[int, int]]:
    """Yields what could be read instead, argument -> version: of one argument first, the nearest versions first, then
    of several."""
    others: dict[int, list[int]] = {}
    for argument, held in enumerate(run.held):
        if held is None:
            continue
        versions = run.versions[argument]
        different = [i for i, version in enumerate(versions) if version.name != versions[held].name]
        if different:
            others[argument] = sorted(different, key=lambda i, held=held: abs(i - held))
    for count in range(1, len(others) + 1):
        for arguments in itertools.combinations(others, count):
            for versions in itertools.product(*(others[argument] for argument in arguments)):
                yield dict(zip(arguments, versions, strict=True))


def make_stale_read(evidence: Evidence, run: KernelRun, argument: int, version: int) -> StaleRead:
    held = run.held[argument]
    assert held is not None
    is_late = version < held
    # the first write that came too early, or the one that came too late
    launch = run.versions[argument][version + 1 if is_late else version].launch
    writer = evidence.find_written(launch)
    return StaleRead(argument, is_late, writer and writer.kernel, writer and writer.node)


def compute(
    kernel: Kernel, names: tuple[str | None, ...], wrong: WrongBuffer, read: Read
) -> tuple[Array, NDArray[np.bool_]] | str:
    """Returns what a kernel as scheduled writes, from contents of these names, in the shape of what is right, and which
    elements nobody defines; or why that cannot be had."""
    try:
        written = run_kernel(kernel, read_arguments(kernel.dtypes, names, wrong.buffer, read))
    except Unknown as error:
        return str(error)
    except REFUSED_BY_NUMPY as error:
        return describe_refusal(error)
    scheduled = written.get(0)
    if scheduled is None:
        return "it does not write its first buffer"
    return arrange(scheduled, wrong.buffer, wrong.right, wrong.ambient)
