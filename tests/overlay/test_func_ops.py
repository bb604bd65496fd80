"""vmap, gradient and jvp of every op of the table, against single elements on stock tinygrad.

Each op has a forward, a gradient and a jvp case here; which axis, depth and order of the two functions they have goes round, so
that all of them come up with many ops. `python -m tests.overlay.func_ops` runs every case of every op.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from func_ops.cases import Case, Run, all_cases
from func_ops.expected import expected_values
from func_ops.table import OPS, why_not
from tinygrad import Device


def chosen() -> Iterator[Case]:
    """One case of each kind for each op, all of an op with the same layout: the oracle works out one."""
    for number, op in enumerate(OPS.values()):
        layout = ("every", "every", "every", "first whole", "first alone")[number % 5]
        cases = [case for case in all_cases(op) if case.layout == layout]
        for kind in ("forward", "gradient", "jvp"):
            fitting = [case for case in cases if kind in case.mode]
            if fitting:
                yield fitting[number * 7 % len(fitting)]
    yield from (case for case in all_cases(OPS["softmax"]) if case.layout == "every")


CASES = list({str(case): case for case in chosen()}.values())


@pytest.fixture(scope="module")
def expected() -> dict[str, np.ndarray]:
    return expected_values([case.wanted for case in CASES])


@pytest.fixture(autouse=True)
def _no_compiler() -> Iterator[None]:
    """The numbers are few and the kernels many: what takes the time is the compiler."""
    device, Device.DEFAULT = Device.DEFAULT, "PYTHON"
    yield
    Device.DEFAULT = device


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_the_single_elements_on_stock_tinygrad(case: Case, expected: dict[str, np.ndarray]) -> None:
    if (reason := why_not(case)) is None:
        Run(case, expected).check()
        return
    with pytest.raises(Exception):  # noqa: B017, PT011 - which one it is says the reason in the table
        Run(case, expected).check()
    pytest.xfail(reason)
