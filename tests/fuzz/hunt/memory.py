"""Statements about memory: what has its own, what is written in place."""

from __future__ import annotations

from tests.fuzz.draw import Draw
from tests.fuzz.hunt.pool import Drawn, Pool, axis


def keep(d: Draw, pool: Pool) -> Drawn | None:
    name = pool.pick()
    text = d.choice(
        ("{0}.contiguous()", "{0}.contiguous()", "{0}.clone()", "{0}.contiguous().realize()", "{0}.detach()")
    )
    return Drawn(text, (name,), pool.kinds[name])


def realize(d: Draw, pool: Pool) -> Drawn | None:
    name = pool.pick()
    return Drawn("{0}.realize()", (name,))


def assign(d: Draw, pool: Pool) -> Drawn | None:
    """A whole value, or a part of it."""
    if not pool.owned:
        return None
    name = d.choice(pool.owned)
    kind = pool.kinds[name]
    others = [n for n, other in pool.kinds.items() if other == kind]
    other = d.choice(others)
    whole = (
        "{0}.assign({0} * 2)",
        "{0}.assign({1})",
        "{0}.assign({1} + 1)",
        "{0}.assign({0} + {1})",
        "{0} += {1}",
        "{0} *= 2",
    )
    if not kind.shape or d.chance(40):
        return Drawn(d.choice(whole), (name, other))
    at = axis(d, pool, name)
    stop = d.integer(1, kind.shape[at])
    start = d.integer(0, stop - 1)
    where = f"{':, ' * at}{start}:{stop}"
    back = f"{':, ' * at}::-1"
    chosen = [d.integer(0, kind.shape[at] - 1) for _ in range(2)]
    parts = (
        f"{{0}}[{where}] = 3",
        f"{{0}}[{where}] = {{1}}[{where}]",
        f"{{0}}[{where}] += 1",
        f"{{0}}[{where}].assign({{1}}[{where}] * 2)",
        f"{{0}}[{':, ' * at}{start}] = {{1}}[{':, ' * at}{start}]",
        f"{{0}}[{':, ' * at}{chosen}] = 2",
        f"{{0}}.assign({{0}}[{back}])",
        f"{{0}}.assign({{0}}.flip({at}) + {{1}})",
        f"{{0}}[{where}] = {{0}}[{where}] * 2",
    )
    return Drawn(d.choice(parts), (name, other))
