"""The reference, op by op and dtype by dtype, against Python's own arithmetic and numpy. tinygrad takes no part."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_graphs import Maker

from vmapdbg.reference.arithmetic import FUNCTIONS
from vmapdbg.values.numbers import Array, decode, encode

SIGNED = {"char": 8, "short": 16, "int": 32, "long": 64}
UNSIGNED = {"uchar": 8, "ushort": 16, "uint": 32, "ulong": 64}


@pytest.fixture
def made() -> Maker:
    return Maker()


def wrap(number: int, dtype: str) -> int:
    """Returns an integer, wrapped to a dtype."""
    bits = {**SIGNED, **UNSIGNED}[dtype]
    low = number % 2**bits
    return low - 2**bits if dtype in SIGNED and low >= 2 ** (bits - 1) else low


def limits(dtype: str) -> tuple[int, int]:
    """Returns the smallest and the largest integer of a dtype."""
    if dtype in SIGNED:
        return -(2 ** (SIGNED[dtype] - 1)), 2 ** (SIGNED[dtype] - 1) - 1
    return 0, 2 ** UNSIGNED[dtype] - 1


def divide_towards_zero(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


INTEGER_OPS: dict[str, Callable[[int, int], int]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "max": max,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "cdiv": divide_towards_zero,
    "cmod": lambda x, y: x - divide_towards_zero(x, y) * y,
    "floordiv": lambda x, y: x // y,
    "floormod": lambda x, y: x % y,
}
"""Op -> what it gives before it is wrapped around."""
FLOATS = ("half", "bfloat16", "float", "double", "fp8e4m3", "fp8e5m2")


def samples(dtype: str) -> list[int]:
    smallest, largest = limits(dtype)
    wanted = [0, 1, 2, 3, 7, 100, largest, largest - 1, smallest, smallest + 1, -1, -2, -7, -100]
    return sorted({number for number in wanted if smallest <= number <= largest})


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED])
@pytest.mark.parametrize("op", INTEGER_OPS)
def test_integers_are_python_s_wrapped_around(op: str, dtype: str, made: Maker) -> None:
    pairs = [(x, y) for x in samples(dtype) for y in samples(dtype)]
    x, y = (made.input(np.array(side, dtype=object), dtype) for side in zip(*pairs, strict=True))
    value = made.value(made.op(op, x, y))
    is_division = op in {"cdiv", "cmod", "floordiv", "floormod"}
    for i, (one, other) in enumerate(pairs):
        has_none = is_division and (other == 0 or (dtype in SIGNED and (one, other) == (limits(dtype)[0], -1)))
        assert value.mask[i] == has_none, (one, other)
        if not has_none:
            assert value.numbers[i] == wrap(INTEGER_OPS[op](one, other), dtype), (one, other)


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED])
def test_shifts_by_the_width_or_more_are_undefined(dtype: str, made: Maker) -> None:
    bits = {**SIGNED, **UNSIGNED}[dtype]
    x = made.input([3] * (bits + 2), dtype)
    y = made.input(range(bits + 2), dtype)
    for op, right in (("shl", lambda n: 3 << n), ("shr", lambda n: 3 >> n)):
        value = made.value(made.op(op, x, y))
        assert value.mask.tolist() == [n >= bits for n in range(bits + 2)]
        assert value.numbers[:bits].tolist() == [wrap(right(n), dtype) for n in range(bits)]


@pytest.mark.parametrize("dtype", ["int", "float", "bool"])
def test_comparisons(dtype: str, made: Maker) -> None:
    x, y = made.input([0, 1, 1, 0], dtype), made.input([1, 0, 1, 0], dtype)
    assert made.numbers(made.op("lt", x, y, dtype="bool")).tolist() == [True, False, False, False]
    assert made.numbers(made.op("ne", x, y, dtype="bool")).tolist() == [True, True, False, False]
    assert made.numbers(made.op("eq", x, y, dtype="bool")).tolist() == [False, False, True, True]


def test_bools(made: Maker) -> None:
    x, y = made.input([0, 1, 1, 0], "bool"), made.input([1, 0, 1, 0], "bool")
    expected = {"add": [1, 1, 1, 0], "mul": [0, 0, 1, 0], "max": [1, 1, 1, 0], "xor": [1, 1, 0, 0], "sub": [1, 1, 0, 0]}
    for op, right in expected.items():
        assert made.numbers(made.op(op, x, y)).tolist() == [bool(one) for one in right], op
    assert made.numbers(made.op("neg", x)).tolist() == [True, False, False, True]


# *** floats


def nearest(number: Fraction, dtype: str) -> float:
    """The nearest float of a dtype, found among all of them; ties to the even one."""
    every = decode(Array(bytes(range(256)), dtype, (256,))) if dtype.startswith("fp8") else all_of_16_bits(dtype)
    codes = np.flatnonzero(np.isfinite(every))
    distances = [(abs(Fraction(float(every[code])) - number), code % 2) for code in codes.tolist()]
    return float(every[codes[distances.index(min(distances))]])


def all_of_16_bits(dtype: str) -> np.ndarray[Any, Any]:
    return decode(Array(np.arange(2**16, dtype=np.uint16).tobytes(), dtype, (2**16,)))


@pytest.mark.parametrize("dtype", ["fp8e4m3", "fp8e5m2"])
@given(st.floats(-300, 300))
def test_a_float_is_rounded_to_the_nearest_even_of_its_dtype(dtype: str, number: float) -> None:
    assert float(decode(encode([number], dtype))[0]) == nearest(Fraction(number), dtype)


@pytest.mark.parametrize("dtype", ["half", "bfloat16", "fp8e4m3", "fp8e5m2"])
def test_midpoints_of_neighbours_go_to_the_even_one(dtype: str) -> None:
    bits = 8 if dtype.startswith("fp8") else 16
    kind = np.uint8 if bits == 8 else np.uint16
    codes = np.arange(2 ** (bits - 1), dtype=kind)
    with np.errstate(invalid="ignore"):
        every = decode(Array(codes.tobytes(), dtype, codes.shape)).astype(np.float64)
    last = int(np.isfinite(every).sum()) - 1
    middles = (every[:last] + every[1 : last + 1]) / 2
    found = np.frombuffer(encode(middles, dtype).data, kind)
    assert (found % 2 == 0).all()
    assert (np.abs(found.astype(int) - codes[:last].astype(int)) <= 1).all()
    assert np.array_equal(np.frombuffer(encode(every[: last + 1], dtype).data, kind), codes[: last + 1])
    assert np.array_equal(np.frombuffer(encode(-every[: last + 1], dtype).data, kind) >> (bits - 1), [1] * (last + 1))


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_and_values_that_are_too_large(dtype: str) -> None:
    nan, huge, small = decode(encode([math.nan, math.inf, -math.inf], dtype)).tolist()
    assert math.isnan(nan)
    if dtype == "fp8e4m3":
        assert math.isnan(huge)
        assert math.isnan(small)
    else:
        assert (huge, small) == (math.inf, -math.inf)
    assert decode(encode(np.array([1e30], np.float32), "bfloat16"))[0] == pytest.approx(1e30, rel=1e-2)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "fdiv"])
def test_each_float_op_is_rounded_once_to_its_dtype(op: str, dtype: str, made: Maker) -> None:
    chance = np.random.default_rng(7)
    x = decode(encode(chance.uniform(-3, 3, 200), dtype)).astype(np.float64)
    y = decode(encode(chance.uniform(1, 3, 200), dtype)).astype(np.float64)
    found = made.numbers(made.op(op, made.input(x, dtype), made.input(y, dtype)))
    exact: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "fdiv": lambda a, b: a / b,
    }
    for one, other, got in zip(x.tolist(), y.tolist(), found.tolist(), strict=True):
        right = exact[op](Fraction(one), Fraction(other))
        # rounding the double is rounding twice, which is never off for these widths
        assert got == float(decode(encode([float(right)], dtype))[0])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("op", "right"),
    [
        ("sqrt", math.sqrt),
        ("sin", math.sin),
        ("exp2", lambda x: 2.0**x),
        ("log2", math.log2),
        ("reciprocal", lambda x: 1 / x),
        ("trunc", math.trunc),
        ("neg", lambda x: -x),
    ],
)
def test_float_functions(op: str, right: Callable[[float], float], dtype: str, made: Maker) -> None:
    x = decode(encode([0.25, 0.5, 1.0, 1.25, 1.75, 2.0, 3.5], dtype)).astype(np.float64)
    found = made.numbers(made.op(op, made.input(x, dtype)))
    expected = decode(encode([right(number) for number in x.tolist()], dtype))
    # numpy may be off by one in the last place, as everybody is
    assert np.allclose(found, expected, rtol=2e-7 if dtype in {"float", "double"} else 0, atol=0)


@pytest.mark.parametrize(("op", "right"), [("sqrt", math.sqrt), ("sin", math.sin), ("reciprocal", lambda x: 1 / x)])
def test_a_float_function_of_integers_is_computed_in_floats(op: str, right: Callable[[float], float]) -> None:
    """numpy would give 0 for 1 / 7, and the root of a small integer as a half."""
    for dtype in ("char", "int"):
        made = Maker()
        found = made.numbers(made.op(op, made.input([1, 3, 7], dtype), dtype="float"))
        assert np.allclose(found, [right(number) for number in (1, 3, 7)], rtol=2e-7, atol=0)


def test_the_logarithm_of_a_negative_number_whose_reciprocal_is_infinite_is_undefined() -> None:
    """tinygrad's own logarithm takes it for -0.0, whose logarithm is minus infinity."""
    for dtype, tiny, small in (("float", -1e-40, -1e-37), ("bfloat16", -1e-40, -1e-37), ("double", -5e-324, -1e-300)):
        made = Maker()
        log = made.value(made.op("log2", made.input([tiny, small, -0.0, -tiny], dtype)))
        assert log.mask.tolist() == [True, False, False, False]
        assert math.isnan(log.numbers[1])
        assert log.numbers[2] == -math.inf
        assert math.isfinite(log.numbers[3])


def test_functions_that_have_no_number(made: Maker) -> None:
    """tinygrad takes `x * 0` for zero, and rewrites the gradient of a sigmoid so that nothing in it is infinite."""
    x, y = made.input([math.inf, math.nan, 2.0], "float"), made.input([0.0, 0.0, 3.0], "float")
    product = made.value(made.op("mul", x, y))
    assert product.mask.tolist() == [True, False, False]
    root = made.value(made.op("sqrt", made.input([-1.0], "float")))
    assert root.undefined is None
    x = made.input([-1.0, 0.0], "float")
    assert np.isnan(made.numbers(made.op("sqrt", x))[0])
    assert made.numbers(made.op("reciprocal", x)).tolist() == [-1.0, math.inf]
    log = made.numbers(made.op("log2", x))
    assert np.isnan(log[0])
    assert log[1] == -math.inf
    largest = made.value(made.op("max", made.input([1.0, math.nan], "float"), made.input([2.0, 3.0], "float")))
    assert largest.numbers[0] == 2.0
    assert largest.mask.tolist() == [False, True]


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED])
def test_a_float_that_no_integer_is_near_is_undefined(dtype: str, made: Maker) -> None:
    smallest, largest = limits(dtype)
    numbers = [0.0, 1.9, -0.9, -1.9, 3e38, -3e38, math.nan, math.inf, float(largest), float(largest) * 2.1]
    value = made.value(made.op("cast", made.input(numbers, "double"), dtype=dtype))
    for number, got, is_undefined in zip(numbers, value.numbers, value.mask, strict=True):
        fits = math.isfinite(number) and smallest <= int(number) <= largest
        assert is_undefined == (not fits), number
        assert not fits or got == int(number)


def test_casts_and_constants_wrap_and_round(made: Maker) -> None:
    whole = made.input([300, -1, 0, 2**31 - 1], "int")
    assert made.numbers(made.op("cast", whole, dtype="uchar")).tolist() == [44, 255, 0, 255]
    assert made.numbers(made.op("cast", whole, dtype="bool")).tolist() == [True, True, False, True]
    assert made.numbers(made.op("cast", whole, dtype="float")).tolist() == [300.0, -1.0, 0.0, 2.0**31]
    assert made.numbers(made.op("cast", made.input([70000.0, 1.0], "float"), dtype="half")).tolist() == [math.inf, 1.0]
    beyond = made.value(made.op("cast", made.input([1000.0, 2.0], "float"), dtype="fp8e4m3"))
    assert beyond.mask.tolist() == [True, False]
    assert made.numbers(made.op("cast", made.input([0.5, 0.0, math.nan], "float"), dtype="bool")).tolist() == [1, 0, 1]
    assert made.numbers(made.const(-1, "uint", (2,))).tolist() == [2**32 - 1] * 2
    assert made.numbers(made.const(2049.0, "half")).item() == 2048.0
    assert made.numbers(made.const(True, "bool")).item() is True
    assert made.numbers(made.const(-math.inf, "float")).item() == -math.inf


def test_bits_and_the_threefry_of_its_paper(made: Maker) -> None:
    one = made.op("bitcast", made.input([1.0, -2.0], "float"), dtype="uint")
    assert made.numbers(one).tolist() == [0x3F800000, 0xC0000000]
    assert made.numbers(made.op("bitcast", one, dtype="float")).tolist() == [1.0, -2.0]
    assert made.numbers(made.op("bitcast", made.input([1.0], "half"), dtype="ushort")).tolist() == [0x3C00]
    assert made.numbers(made.op("bitcast", made.input([1.0], "bfloat16"), dtype="short")).tolist() == [0x3F80]
    wide = made.view("bitcast", made.input([[0x01020304, 5]], "uint"), (1, 8))
    made.graph.nodes[wide] = type(made.node(wide))("bitcast", "uchar", (1, 8), made.node(wide).src)
    assert made.numbers(wide).tobytes() == struct.pack("<II", 0x01020304, 5)
    # the known answers of Random123 for Threefry-2x32 with 20 rounds
    counters = np.array([0, 2**64 - 1, 0x85A308D3_243F6A88], np.uint64)
    keys = np.array([0, 2**64 - 1, 0x03707344_13198A2E], np.uint64)
    found = made.numbers(made.op("threefry", made.input(counters, "ulong"), made.input(keys, "ulong"))).tolist()
    expected = [(0x6B200159, 0x99BA4EFE), (0x1CB996FC, 0xBB002BE7), (0xC4923A9C, 0x483DF7A0)]
    assert found == [low | high << 32 for low, high in expected]


def test_undefined_elements_travel_and_are_chosen(made: Maker) -> None:
    quotient = made.op("cdiv", made.input([8, 8, 8, 8], "int"), made.input([2, 0, 2, 2], "int"))
    moved = made.view("flip", made.view("reshape", quotient, (2, 2)), (2, 2), (1,))
    total = made.value(made.reduce("add", made.op("add", moved, moved), (1,)))
    assert total.mask.tolist() == [[True], [False]]
    assert total.numbers[1].tolist() == [16]
    condition = made.input([1, 0, 1], "bool")
    quotient = made.op("cdiv", made.input([8, 8, 8], "int"), made.input([0, 0, 2], "int"))
    value = made.value(made.op("where", condition, quotient, made.input([1, 2, 3], "int")))
    assert value.mask.tolist() == [True, False, False]
    assert value.numbers[1:].tolist() == [2, 4]


def test_powers_and_a_product_with_a_sum(made: Maker) -> None:
    found = made.numbers(made.op("pow", made.input([2.0, 9.0, -2.0], "float"), made.input([3.0, 0.5, 2.0], "float")))
    assert found.tolist() == [8.0, 3.0, 4.0]
    value = made.value(made.op("pow", made.input([2, 3], "int"), made.input([5, -1], "int")))
    assert value.undefined is not None
    assert value.numbers[0] == 32
    sources = (made.input([2.0, 3.0], "float"), made.input([5.0, 7.0], "float"), made.input([1.0, 1.0], "float"))
    assert made.numbers(made.op("mulacc", *sources)).tolist() == [11.0, 22.0]


def test_every_op_is_looked_at() -> None:
    floats = "shl shr lt ne eq fdiv neg sqrt sin exp2 log2 reciprocal trunc"
    here = {*INTEGER_OPS, *floats.split()}
    assert set(FUNCTIONS) - here == {"where", "pow", "threefry", "mulacc"}
