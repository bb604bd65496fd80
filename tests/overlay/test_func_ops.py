"""vmap, gradient and jvp of every op of the table, against single elements on stock tinygrad.

Which mode, axis and depth an op has here is drawn once and for all; each of them comes up with many ops.
`python -m tests.overlay.func_ops` runs every case of every op.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
from func_ops.cases import Case, Run, all_cases
from func_ops.expected import expected_values
from func_ops.table import OPS, why_not
from tinygrad import Device


def chosen() -> Iterator[Case]:
    """A case or two of each op. A jvp case compares the value as well, so that not each op needs a forward case."""
    for number, op in enumerate(OPS.values()):
        # all of an op with the same layout: the oracle works out one
        layout = ("of outer", "every", "first whole", "of outer", "first alone")[number % 5]
        cases = [case for case in all_cases(op) if case.layout == layout]
        kinds = ["gradient", "jvp"][number % 2 :][:1] if op.moves else ["forward"]
        if op.moves and number % 4 == 0:
            kinds.append("forward")
        for kind in kinds:
            fitting = [case for case in cases if kind in case.mode]
            yield random.Random(f"{op.name} {kind}").choice(fitting)
    # and one op in every way
    yield from (case for case in all_cases(OPS["softmax"]) if case.layout in {"every", "of outer"})


CASES = list({str(case): case for case in chosen()}.values())


@pytest.fixture(scope="module")
def expected() -> dict[str, np.ndarray]:
    return expected_values([place for case in CASES for place in case.wanted])


@pytest.fixture(autouse=True)
def _no_compiler() -> Iterator[None]:
    """The numbers are few and the kernels many: what takes the time is the compiler."""
    device, Device.DEFAULT = Device.DEFAULT, "PYTHON"
    yield
    Device.DEFAULT = device


# the lane of the whole table (python -m tests.overlay.func_ops) has a part of it in every run of .ci/run, too
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_the_single_elements_on_stock_tinygrad(case: Case, expected: dict[str, np.ndarray]) -> None:
    if (reason := why_not(case)) is None:
        Run(case, expected).check()
        return
    with pytest.raises(Exception):  # noqa: B017, PT011 - which one it is says the reason in the table
        Run(case, expected).check()
    pytest.xfail(reason)
