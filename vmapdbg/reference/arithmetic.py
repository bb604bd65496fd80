"""Arithmetic on elements: how numpy carries and rounds the numbers of each dtype, what each op gives, what C leaves
undefined, and how many roundings are on the way to a value. half, bfloat16 and fp8 are carried in float32, which holds
all their numbers, and rounded after each op: as if the op was rounded once."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from vmapdbg.reference.graph import OpGraph, OpNode
from vmapdbg.reference.value import Mask
from vmapdbg.values.numbers import NUMPY_DTYPES, Array, Numbers, decode, encode, round_numbers
from vmapdbg.values.tolerance import EPSILON, ITEMSIZE, NARROW, WIDER, count_terms, is_float, measure_rounding

Found = tuple[Numbers, Mask | None]  # numbers, and which of them are undefined; None: all are defined

_CARRIERS = {**NUMPY_DTYPES, **dict.fromkeys(NARROW, np.float32)}


def carrier_of(dtype: str) -> np.dtype[Any]:
    """Returns numpy's dtype that carries the numbers of a dtype."""
    return np.dtype(_CARRIERS[dtype])


def settle(numbers: Numbers, dtype: str) -> Numbers:
    """Returns numbers as numbers of a dtype, in its carrier: floats are rounded."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype in NARROW:
            return round_numbers(numbers, dtype).astype(np.float32, copy=False)
        return np.asarray(numbers, dtype=_CARRIERS[dtype])


def load(array: Array) -> Numbers:
    """Returns the contents of a buffer in the carrier of their dtype, in their shape."""
    return decode(array).astype(carrier_of(array.dtype), copy=False).reshape(array.shape)


def cast(numbers: Numbers, source: str, dtype: str) -> Found:
    """Casts numbers to another dtype, and returns which results C leaves undefined: they are out of its range."""
    if dtype == "bool":
        return numbers != 0, None
    if is_float(dtype):
        rounded = settle(numbers, dtype)
        if not dtype.startswith("fp8"):
            return rounded, None
        return rounded, ~np.isfinite(rounded)  # some devices return the largest number
    carrier = carrier_of(dtype)
    if not is_float(source):
        return numbers.astype(carrier), None
    limits = np.iinfo(carrier)
    with np.errstate(invalid="ignore", over="ignore"):
        cut = np.trunc(numbers.astype(np.float64))  # towards zero
        # the largest integer of 64 bits is no double, but the number after it is
        fits = (cut >= float(limits.min)) & (cut < float(limits.max) + 1)
    return np.where(fits, cut, 0).astype(carrier), ~fits


def bitcast(numbers: Numbers, source: str, dtype: str) -> Numbers:
    """Reads the bytes of numbers as another dtype; the last axis may get more or fewer elements."""
    stored = encode(numbers, source)
    shape = numbers.shape
    if shape:
        shape = (*shape[:-1], shape[-1] * ITEMSIZE[source] // ITEMSIZE[dtype])
    return load(Array(stored.data, dtype, shape))


def _divide_towards_zero(x: Numbers, y: Numbers) -> Numbers:
    quotient, rest = np.divmod(x, y)
    return quotient + ((rest != 0) & ((x < 0) != (y < 0)))  # numpy rounds down


def _if_defined(
    function: Callable[..., Numbers], find_undefined: Callable[[Numbers, Numbers], Mask], harmless: int
) -> Callable[[Numbers, Numbers], Found]:
    """Returns a function that also says which results are undefined: their second operand is replaced."""

    def compute(x: Numbers, y: Numbers) -> Found:
        undefined = np.broadcast_to(find_undefined(x, y), np.broadcast_shapes(x.shape, y.shape))
        return function(x, np.where(undefined, harmless, y)), undefined

    return compute


def _has_no_quotient(x: Numbers, y: Numbers) -> Mask:
    """The divisor is zero, or it is the smallest integer divided by -1."""
    if x.dtype.kind != "i":
        return y == 0
    return (y == 0) | ((x == np.iinfo(x.dtype).min) & (y == -1))


def _is_too_far(x: Numbers, distance: Numbers) -> Mask:
    return (distance < 0) | (distance >= 8 * x.dtype.itemsize)


def _maximum(x: Numbers, y: Numbers) -> Found:
    largest = np.maximum(x, y)
    if x.dtype.kind != "f":
        return largest, None
    return largest, np.isnan(largest)  # devices differ in the largest if one is NaN


def _logarithm(x: Numbers) -> Found:
    found = np.log2(x)
    if not np.signbit(x).any():
        return found, None
    # tinygrad's logarithm knows -0.0 by its reciprocal: it also returns -inf for a tiny negative number, others NaN
    return found, np.isneginf(np.reciprocal(x)) & (x != 0)


def threefry(x: Numbers, key: Numbers) -> Numbers:
    """Threefry2x32 with 20 rounds, on the two halves of 64 bits, the low half first."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    x = x.astype(np.uint64)
    first, second = x & low, x >> half
    key_first, key_second = key.astype(np.uint64) & low, key.astype(np.uint64) >> half
    keys = [key_second, key_first ^ key_second ^ np.uint64(0x1BD11BDA), key_first]
    rotations = ((13, 15, 26, 6), (17, 29, 16, 24))
    first, second = (first + keys[2]) & low, (second + keys[0]) & low
    for group in range(5):
        for rotation in rotations[group % 2]:
            first = (first + second) & low
            turned = (second << np.uint64(rotation)) | (second >> np.uint64(32 - rotation))
            second = first ^ (turned & low)
        first = (first + keys[group % 3]) & low
        second = (second + keys[(group + 1) % 3] + np.uint64(group + 1)) & low
    return first | (second << half)


FUNCTIONS: dict[str, Callable[..., Any]] = {  # op -> its function on arrays of one carrier. Some return Found.
    "add": np.add,
    "sub": lambda x, y: x ^ y if x.dtype.kind == "b" else np.subtract(x, y),
    "mul": np.multiply,
    "max": _maximum,
    "lt": np.less,
    "ne": np.not_equal,
    "eq": np.equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": _if_defined(lambda x, y: np.left_shift(x, y.astype(x.dtype)), _is_too_far, 0),
    "shr": _if_defined(lambda x, y: np.right_shift(x, y.astype(x.dtype)), _is_too_far, 0),
    "cdiv": _if_defined(_divide_towards_zero, _has_no_quotient, 1),
    "cmod": _if_defined(np.fmod, _has_no_quotient, 1),
    "floordiv": _if_defined(np.floor_divide, _has_no_quotient, 1),
    "floormod": _if_defined(np.mod, _has_no_quotient, 1),
    "fdiv": np.divide,
    # an integer has no negative power
    "pow": _if_defined(np.power, lambda x, y: (y < 0) & (x.dtype.kind != "f"), 0),
    "neg": lambda x: ~x if x.dtype.kind == "b" else np.negative(x),
    **{name: getattr(np, name) for name in ("sqrt", "sin", "exp2", "reciprocal", "trunc", "where")},
    "log2": _logarithm,
    "mulacc": lambda x, y, z: x * y + z,
    "threefry": threefry,
}

ROUNDED = frozenset({"add", "sub", "mul", "fdiv", "pow", "sqrt", "sin", "exp2", "log2", "reciprocal", "mulacc"})
"""Ops whose exact result is rounded if it is a float."""

_SERIES = frozenset({"pow", "sin", "exp2", "log2"})
_APPROXIMATED = _SERIES | {"fdiv", "sqrt", "reciprocal"}
"""Ops that devices compute in ways of their own: also a result that is exact may be rounded."""

_PART = 1 << 14  # how many numbers are moved at a time

OF_FLOATS = frozenset({"sqrt", "sin", "exp2", "log2", "reciprocal"})
"""Ops that are computed in the dtype of their result: from 0.14 on their operands may be integers."""

ALGEBRA = frozenset({"add", "sub", "mul", "fdiv"})
"""Ops that tinygrad simplifies as if there was no infinity: `x * 0` to 0, and `x / x` to 1."""


def compute(op: str, operands: list[Numbers]) -> Found:
    """Computes an op on arrays that can be broadcast. A NaN that ALGEBRA makes is undefined: tinygrad may differ."""
    said: list[str] = []
    on_invalid = "call" if op in ALGEBRA else "ignore"
    with np.errstate(all="ignore", invalid=on_invalid, call=lambda text, _: said.append(text)):
        found = FUNCTIONS[op](*operands)
    if said:
        undefined = np.isnan(found)
        for operand in operands:
            undefined = undefined & ~np.isnan(operand)
        return found, undefined
    return found if isinstance(found, tuple) else (found, None)


# *** rounding


class Rounding:
    """Each value is rounded to its own dtype."""

    def carry(self, slot: int, node: OpNode, numbers: Numbers) -> Numbers:
        """Returns operands in the numpy dtype that a node is computed in."""
        return numbers.astype(carrier_of(node.dtype), copy=False)

    def start(self, slot: int, node: OpNode, numbers: Numbers) -> Numbers:
        """Returns the contents of an input, or the bits of a bitcast, as a node's value."""
        return numbers

    def cast(self, slot: int, node: OpNode, numbers: Numbers, source: str) -> Found:
        """Casts numbers of the dtype `source` to a node's dtype, and returns which results are undefined."""
        return cast(numbers, source, node.dtype)

    def finish(self, slot: int, node: OpNode, numbers: Numbers) -> Numbers:
        """Rounds the result of a node's op to the node's value."""
        return settle(numbers, node.dtype)


class InDouble(Rounding):
    """Floats are computed in double precision. With a `seed` each element of an input, and the result of each float op,
    is moved up or down at random by the rounding of its own dtype (an input by that of `WIDER`): results move by what
    the computation does to roundings. What is exact in any order is not moved: small integers, their products and sums.
    Values whose bits a bitcast reads, as random numbers, keep their dtype; they are moved only if an op rounds them."""

    def __init__(self, graph: OpGraph, seed: int | None = None):
        self.graph, self.seed = graph, seed
        self.fixed = find_fixed(graph)

    def carry(self, slot: int, node: OpNode, numbers: Numbers) -> Numbers:
        if not self._is_widened(slot, node):
            return super().carry(slot, node, numbers)
        wide = numbers.astype(np.float64, copy=False)
        if node.op not in _SERIES:
            return wide
        # a device first rounds the argument to one that it has a series for
        moved = self._move(slot, wide, WIDER.get(node.dtype, node.dtype))
        # a negative number to the power of 3.0000001 is NaN
        return np.where(wide == np.rint(wide), wide, moved) if node.op == "pow" else moved

    def start(self, slot: int, node: OpNode, numbers: Numbers) -> Numbers:
        if not self._is_widened(slot, node):
            return numbers
        wide = numbers.astype(np.float64)
        return wide if is_coarse(wide, node.dtype) else self._move(0, wide, WIDER.get(node.dtype, node.dtype))

    def _move(self, slot: int, numbers: Numbers, dtype: str, steps: float = 1) -> Numbers:
        """Moves each number by some steps of its dtype's rounding; not without a seed."""
        if self.seed is None:
            return numbers
        step = EPSILON[dtype] / 2 * steps
        # 1 - eps/2 is the number below 1, 1 + eps the number above
        return move_at_random(numbers, self.seed * 1_000_003 + slot, 1 - step, 1 + 2 * step)

    def cast(self, slot: int, node: OpNode, numbers: Numbers, source: str) -> Found:
        if self._is_widened(slot, node):
            return self.finish(slot, node, numbers.astype(np.float64)), None
        return super().cast(slot, node, numbers, source)

    def finish(self, slot: int, node: OpNode, numbers: Numbers) -> Numbers:
        is_widened = self._is_widened(slot, node)
        result = np.asarray(numbers, dtype=np.float64) if is_widened else super().finish(slot, node, numbers)
        if self.seed is None or not (is_rounded(node) or (is_widened and node.op == "const")):
            return result
        if is_widened and node.op == "cast" and node.dtype in WIDER:
            return settle(result, node.dtype)  # every device rounds alike, what was moved before
        roundings = math.sqrt(roundings_of(self.graph, node))
        if is_widened:
            # a sum rounds each of its partial sums, in any order
            moved = self._move(slot, result, node.dtype, max(1.0, roundings / 2))
            is_exact = node.op not in _APPROXIMATED and settle(result, node.dtype) == result
            return np.where(is_exact, result, moved)
        # its inputs are not moved; the sum is, by as much as the order of its terms can change it
        step = EPSILON[node.dtype] * roundings
        return settle(move_at_random(result, self.seed * 1_000_003 + slot, 1 - step, 1 + step), node.dtype)

    def _is_widened(self, slot: int, node: OpNode) -> bool:
        return slot not in self.fixed and is_float(node.dtype)


def is_coarse(numbers: Numbers, dtype: str) -> bool:
    """Whether numbers, in double precision, have at most half the bits of their dtype above some power of two: then
    sums of them, and of products of two, are exact in any order."""
    if not np.isfinite(numbers).all():
        return False
    mantissas, exponents = np.frexp(numbers[numbers != 0])
    whole = np.ldexp(mantissas, 53).astype(np.int64)
    # the lowest bit of each number
    unit = np.ldexp((whole & -whole).astype(np.float64), exponents - 53).min(initial=math.inf)
    return bool(np.abs(numbers).max(initial=0.0) <= unit / math.sqrt(EPSILON[dtype]))


def move_at_random(numbers: Numbers, seed: int, down: float, up: float) -> Numbers:
    """Returns doubles, each times one of two factors at random: the same for equal numbers, so that ties remain."""
    flat = np.ascontiguousarray(numbers, np.float64).reshape(-1)
    moved = np.empty_like(flat)
    factors = np.array([down, up])
    # parts that the caches of a processor hold
    for start in range(0, flat.size, _PART):
        part = flat[start : start + _PART]
        mixed = (part.view(np.uint64) ^ np.uint64(seed & 0xFFFF_FFFF)) * np.uint64(0x9E37_79B9_7F4A_7C15)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58_476D_1CE4_E5B9)
        mixed >>= np.uint64(63)
        np.multiply(part, factors[mixed.view(np.int64)], out=moved[start : start + _PART])
    return moved.reshape(np.shape(numbers))


def find_fixed(graph: OpGraph) -> set[int]:
    """Returns the nodes whose bits a bitcast to or from a float reads, with all nodes that they are computed from."""
    fixed: set[int] = set()
    for slot in reversed(range(len(graph.nodes))):
        node = graph.nodes[slot]
        kinds = [node.dtype, *(graph.nodes[source].dtype for source in node.src)]
        if slot in fixed or (node.op == "bitcast" and any(map(is_float, kinds))):
            fixed |= {slot, *node.src}
    return fixed


def is_rounded(node: OpNode) -> bool:
    """Whether the exact result of a node's op is rounded to its dtype."""
    if not is_float(node.dtype):
        return False
    if node.op == "reduce":
        return node.arg[0] != "max"
    return node.op in ROUNDED or node.op == "cast"


def count_roundings(graph: OpGraph) -> list[int]:
    """Counts roundings to a node's dtype on the longest path from an input: n in a sum of n, other dtypes by size."""
    variances: list[float] = []
    for node in graph.nodes:
        before = max((variances[source] for source in node.src), default=0.0)
        variances.append(before + measure_rounding(node.dtype, roundings_of(graph, node)))
    return [count_terms(node.dtype, variance) for node, variance in zip(graph.nodes, variances, strict=True)]


def roundings_of(graph: OpGraph, node: OpNode) -> int:
    """Returns how often a node's op rounds: n times for a sum of n numbers."""
    if not is_rounded(node):
        return 0
    if node.op != "reduce":
        return 1
    _, axes, _, names = node.arg
    shape = graph.nodes[node.src[0]].shape
    return math.prod(shape[axis] for axis in axes) * math.prod(graph.ranges[name] for name in names)
