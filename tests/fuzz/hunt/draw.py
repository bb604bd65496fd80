"""Draws plans. Where the choices come from is a `Draw`: a seed."""

from __future__ import annotations

import math

from tests.fuzz.draw import Draw
from tests.fuzz.hunt.plan import Ending, Kind, Plan, Statement, keep_used
from tests.fuzz.hunt.pool import FLOATS, LARGEST, NUMPY, Drawn, NothingFits, Pool
from tests.fuzz.hunt.statements import MAKERS

_TABLE = [maker for maker, weight in MAKERS.items() for _ in range(weight)]
SIZES = ((2, 3), (2, 3, 4), (1, 2, 3), (3, 5), (4, 4, 6), (7, 11), (2, 16), (1, 33))


def draw_plan(draw: Draw) -> Plan:
    """Returns a program of a few statements; tinygrad may refuse it."""
    pool = Pool(draw)
    ending: Ending = draw.choice(("each", "each", "together", "together", "jit"))
    inputs = [draw_input(draw, f"x{i}", ending) for i in range(draw.integer(1, 3))]
    for statement in inputs:
        assert statement.out is not None
        assert statement.kind is not None
        pool.kinds[statement.out] = statement.kind
        if "realize()" in statement.text and ending != "jit":
            pool.owned.append(statement.out)
    steps: list[Statement] = []
    # a choice before each step: without the choices of one step, the program is the same without that step
    while len(steps) < 9 and draw.chance(85):
        drawn = draw_step(draw, pool, ending)
        if drawn is not None:
            steps.append(add_step(pool, drawn, len(steps)))
    made = [s.out for s in steps if s.out is not None]
    read = {a for s in steps for a in s.args}
    results = [name for name in made if name not in read and draw.chance(95)]
    results += [name for name in pool.owned if any(s.out is None and s.args[0] == name for s in steps)]
    if made and draw.chance(25):
        results.append(draw.choice(made))
    unique = list(dict.fromkeys(results)) or made[-1:] or [inputs[0].out or ""]
    order = sorted(unique, key=lambda name: draw.integer(0, 99))
    return keep_used(Plan(tuple(inputs), tuple(steps), tuple(order[:4]), ending))


def draw_step(draw: Draw, pool: Pool, ending: Ending) -> Drawn | None:
    for _ in range(8):
        try:
            drawn = draw.choice(_TABLE)(draw, pool)
        except NothingFits:
            continue
        # a function that is jitted is called for its result alone
        if drawn and not (ending == "jit" and "Variable" in drawn.text):
            return drawn
    return None


def add_step(pool: Pool, drawn: Drawn, number: int) -> Statement:
    if drawn.kind is None:
        return Statement(drawn.text, drawn.args)
    name = f"v{number}"
    pool.kinds[name] = drawn.kind
    if "contiguous()" in drawn.text or "clone()" in drawn.text:
        pool.owned.append(name)
    return Statement(drawn.text, drawn.args, name, drawn.kind)


def draw_input(draw: Draw, name: str, ending: Ending) -> Statement:
    sizes = draw.choice(SIZES)
    shape = tuple(draw.choice(sizes) for _ in range(draw.choice((1, 2, 2, 2, 3))))
    while math.prod(shape) > LARGEST:
        shape = shape[1:]
    dtype = draw.choice(("float", "float", "float", "float", "int", "half"))
    kind = Kind(shape, dtype)
    data = write_data(shape, dtype, int(name[1:]) + 1)
    if ending == "jit":
        return Statement(f"{data}.realize()", (), name, kind)
    texts = (
        data,
        f"{data}.realize()",
        f"{data}.realize()",
        f"{data}.realize()",
        f"Tensor.arange({math.prod(shape)}, dtype=dtypes.{dtype}).reshape({shape})",
        f"Tensor.full({shape}, 2, dtype=dtypes.{dtype})",
        f"Tensor.zeros({shape}, dtype=dtypes.{dtype}).contiguous().realize()",
        f"Tensor.eye({shape[0]}, dtype=dtypes.{dtype})",
    )
    text = draw.choice(texts)
    if "eye" in text:
        kind = Kind((shape[0], shape[0]), dtype)
    return Statement(text, (), name, kind)


def write_data(shape: tuple[int, ...], dtype: str, seed: int) -> str:
    numbers = f"standard_normal({shape})" if dtype in FLOATS else f"integers(-5, 9, {shape})"
    return f'Tensor(np.random.default_rng({seed}).{numbers}.astype("{NUMPY[dtype]}"))'
