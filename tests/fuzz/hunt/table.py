"""Which statements are drawn, and how often."""

from __future__ import annotations

from collections.abc import Mapping

from tests.fuzz.hunt import elements, memory, places, reduces
from tests.fuzz.hunt.pool import Maker

MAKERS: Mapping[Maker, int] = {
    elements.unary: 14,
    elements.binary: 10,
    elements.compare: 3,
    elements.masked: 4,
    elements.cast: 4,
    elements.bitcast: 1,
    reduces.reduce: 14,
    reduces.reduce_more: 4,
    reduces.arg_reduce: 2,
    reduces.scan: 5,
    reduces.softmax: 8,
    reduces.matmul: 6,
    places.movement: 16,
    places.split: 4,
    places.pad: 7,
    places.join: 7,
    places.index: 6,
    places.gather: 4,
    places.symbolic: 3,
    places.window: 4,
    memory.keep: 5,
    memory.realize: 2,
    memory.assign: 9,
}
