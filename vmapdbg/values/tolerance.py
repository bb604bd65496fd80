"""The dtypes, and when two computations of the same value agree: the one tolerance of diff, check and bisect.

A dtype has tinygrad's name, such as `float`. Two runs of one graph add the numbers of a reduce in different orders, and
each order rounds in its own way. n roundings point up and down alike, so their sum grows with the square root of n.
Nothing here imports numpy, so commands that compare nothing start quickly."""

import math
from dataclasses import dataclass

ITEMSIZE = {  # dtype -> bytes of an element
    **dict.fromkeys(("bool", "char", "uchar", "fp8e4m3", "fp8e5m2"), 1),
    **dict.fromkeys(("short", "ushort", "half", "bfloat16"), 2),
    **dict.fromkeys(("int", "uint", "float"), 4),
    **dict.fromkeys(("long", "ulong", "double"), 8),
}
_FP8_BITS = {"fp8e4m3": (4, 3), "fp8e5m2": (5, 2)}
# float dtype -> bits of the exponent and of the mantissa
FLOAT_BITS = {"double": (11, 52), "float": (8, 23), "half": (5, 10), "bfloat16": (8, 7), **_FP8_BITS}
EPSILON = {name: 2.0**-mantissa for name, (_, mantissa) in FLOAT_BITS.items()}
"""dtype -> distance from 1 to the next larger number."""
NARROW = frozenset({"half", "bfloat16", "fp8e4m3", "fp8e5m2"})  # floats smaller than a float
SMALLEST = {name: 2.0 ** (2 - 2 ** (exponent - 1) - mantissa) for name, (exponent, mantissa) in FLOAT_BITS.items()}
"""dtype -> the smallest number above zero."""
# other names of the same dtypes, in other releases and in renderers
_SPELLINGS = {"float64": "double", "float32": "float", "float16": "half", "bfloat": "bfloat16", "__bf16": "bfloat16"}

# Roundings that no reduce accounts for: exp, log and others are off by a few units in the last place, and each device
# has its own. Then, because some roundings point the same way, how many standard deviations of their sum are allowed.
_BASE, _DEVIATIONS = 16, 4
WIDER = {"bfloat16": "float", "fp8e4m3": "half", "fp8e5m2": "half"}
"""dtype -> the dtype that devices compute it in. Its results are off by half a unit, and by what was rounded before."""
_BASE_WIDENED, _DEVIATIONS_WIDENED = 0.5, 1
# An element near zero is often the difference of larger elements: it may be off by a share of their error.
_NEAR_ZERO = 0.01
_FEW = 1e-3  # so much of a rounding does not count


@dataclass(frozen=True)
class Tolerance:
    """What two computations of a float may differ by: `relative` times an element's size plus `absolute`, both 0 for
    integers and bools. `terms`: how many numbers are summed up on the longest way from an input to the value."""

    terms: int
    relative: float
    absolute: float


def spell_dtype(name: str) -> str:
    """Returns the name of a dtype in this module."""
    return _SPELLINGS.get(name, name)


def is_float(dtype: str) -> bool:
    return dtype in EPSILON


def make_tolerance(dtype: str, terms: int, largest: float) -> Tolerance:
    """Returns the tolerance of an array with this `largest` finite element. Relative: eps * (16 + 4 * sqrt(terms)), eps
    of the dtype; for bfloat16 and fp8 eps * (0.5 + sqrt(terms)). Absolute: 1 % of that times `largest`."""
    if not is_float(dtype):
        return Tolerance(terms, 0.0, 0.0)
    base, deviations = (_BASE_WIDENED, _DEVIATIONS_WIDENED) if dtype in WIDER else (_BASE, _DEVIATIONS)
    relative = EPSILON[dtype] * (base + deviations * math.sqrt(max(terms, 0)))
    return Tolerance(terms, relative, relative * largest * _NEAR_ZERO)


def measure_rounding(dtype: str, count: float) -> float:
    """Returns the variance of the relative error from `count` roundings to a dtype; 0 for integers and bools."""
    return count * EPSILON.get(dtype, 0.0) ** 2


def count_terms(dtype: str, variance: float) -> int:
    """Returns how many roundings to a dtype have this variance; 0 for integers and bools."""
    return 0 if not is_float(dtype) else math.ceil(variance / EPSILON[dtype] ** 2 - _FEW)
