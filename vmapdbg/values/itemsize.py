"""How many bytes an element has."""

from __future__ import annotations

ITEMSIZE = {
    "bool": 1,
    "char": 1,
    "uchar": 1,
    "short": 2,
    "ushort": 2,
    "int": 4,
    "uint": 4,
    "long": 8,
    "ulong": 8,
    "half": 2,
    "float": 4,
    "double": 8,
    "bfloat16": 2,
    "fp8e4m3": 1,
    "fp8e5m2": 1,
}
"""By dtype. The names are those of repr(dtype), without "dtypes."."""
