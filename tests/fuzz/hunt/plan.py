"""A random program as data: inputs, statements in their order, and how its results are realized."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

Ending = Literal["each", "together", "jit"]
"""How the results are realized: one after the other, in one call, or by a TinyJit that is replayed."""


@dataclass(frozen=True)
class Kind:
    """The shape and dtype of a value, the latter by its name in `dtypes`."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Statement:
    """One line. `text` has `{0}`, `{1}` for `args`. `out` is the name that it makes, with its `kind`; None if it
    changes its first argument in place or realizes it."""

    text: str
    args: tuple[str, ...] = ()
    out: str | None = None
    kind: Kind | None = None

    def write(self) -> str:
        written = self.text.format(*self.args)
        return written if self.out is None else f"{self.out} = {written}"


@dataclass(frozen=True)
class Plan:
    """`inputs` are statements without arguments that make buffers or values; `results` are names."""

    inputs: tuple[Statement, ...]
    steps: tuple[Statement, ...]
    results: tuple[str, ...]
    ending: Ending = "each"

    @property
    def kinds(self) -> dict[str, Kind]:
        """The kind of each value, by its name."""
        return {s.out: s.kind for s in self.statements if s.out is not None and s.kind is not None}

    @property
    def statements(self) -> tuple[Statement, ...]:
        return (*self.inputs, *self.steps)


IMPORTS = "import numpy as np\nfrom tinygrad import Tensor, TinyJit, Variable, dtypes\n"
REPLAYS = 4


def write_program(plan: Plan) -> str:
    """Returns the program as Python: a snippet for `vmapdbg check`."""
    if plan.ending == "jit":
        return write_jitted(plan)
    lines = [IMPORTS, *(s.write() for s in plan.statements)]
    if plan.ending == "together":
        lines.append(f"Tensor.realize({', '.join(plan.results)})")
    lines += [f"print({result}.numpy())" for result in plan.results]
    return "\n".join(lines) + "\n"


def write_jitted(plan: Plan) -> str:
    """The steps as a function, called by itself and through a TinyJit, with other inputs each time.

    Each result has one more op: a TinyJit computes nothing if a result is an input or a view of it."""
    names = ", ".join(s.out for s in plan.inputs if s.out is not None)
    lines = [IMPORTS, f"def program({names}):"]
    lines += [f"    {s.write()}" for s in plan.steps]
    for result in plan.results:
        lines.append(
            f"    {result} = {result}.logical_not()" if is_bool(plan, result) else f"    {result} = {result} + 1"
        )
    lines += [f"    Tensor.realize({', '.join(plan.results)})", f"    return ({', '.join(plan.results)},)", ""]
    lines += ["def inputs(seed):"]
    lines += [f"    {write_seeded(s)}" for s in plan.inputs]
    lines += [f"    return ({names},)", "", "jitted = TinyJit(program)", f"for seed in range({REPLAYS}):"]
    lines += ["    right = [result.numpy() for result in program(*inputs(seed))]"]
    lines += ["    got = [result.numpy() for result in jitted(*inputs(seed))]"]
    lines += ["    for ours, theirs in zip(got, right):"]
    lines += ['        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=1e-3, err_msg=f"replay {seed}")']
    return "\n".join(lines) + "\n"


def is_bool(plan: Plan, name: str) -> bool:
    kind = plan.kinds.get(name)
    return kind is not None and kind.dtype == "bool"


def write_seeded(statement: Statement) -> str:
    return re.sub(r"default_rng\((\d+)\)", r"default_rng(\1 + 50 * seed)", statement.write())


def keep_used(plan: Plan) -> Plan:
    """The plan without what no result needs; a statement that changes a value in place is needed where the value is."""
    needed = set(plan.results)
    kept: list[Statement] = []
    # what is changed may be a view of what is needed, so all that hangs together is
    for statement in reversed(plan.statements):
        if is_needed(statement, needed):
            kept.append(statement)
            needed.update(statement.args)
    wanted = set(map(id, kept))
    inputs = tuple(s for s in plan.inputs if id(s) in wanted)
    return replace(plan, inputs=inputs, steps=tuple(s for s in plan.steps if id(s) in wanted))


def is_needed(statement: Statement, needed: set[str]) -> bool:
    if statement.out is None:
        return statement.args[0] in needed
    return statement.out in needed
