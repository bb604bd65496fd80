"""The reference, op by op and dtype by dtype, against PyTorch on the inputs of its op database. tinygrad takes no part.

Skipped where torch is not installed: `pip install -e '.[test,upstream]'`, as .ci/run does in its upstream lane.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference_graphs import Maker

from vmapdbg.reference.value import RangedArray
from vmapdbg.values.tolerance import EPSILON

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("expecttest", reason="torch's op database needs expecttest, which is not installed")
with warnings.catch_warnings():
    # torch looks for packages that its own tests use
    warnings.simplefilter("ignore")
    op_db = pytest.importorskip("torch.testing._internal.common_methods_invocations").op_db

DTYPES = {
    "bool": torch.bool,
    "char": torch.int8,
    "uchar": torch.uint8,
    "short": torch.int16,
    "int": torch.int32,
    "long": torch.int64,
    "half": torch.half,
    "bfloat16": torch.bfloat16,
    "float": torch.float,
    "double": torch.double,
}
NARROW = {"fp8e4m3": torch.float8_e4m3fn, "fp8e5m2": torch.float8_e5m2}
UNSIGNED = {"ushort": torch.uint16, "uint": torch.uint32, "ulong": torch.uint64}

ELEMENTWISE = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "max": "maximum",
    "lt": "lt",
    "ne": "ne",
    "eq": "eq",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "shl": "bitwise_left_shift",
    "shr": "bitwise_right_shift",
    "fdiv": "div",
    "cdiv": "div trunc_rounding",
    "floordiv": "div floor_rounding",
    "cmod": "fmod",
    "floormod": "remainder",
    "pow": "pow",
    "neg": "neg",
    "sqrt": "sqrt",
    "sin": "sin",
    "exp2": "exp2",
    "log2": "log2",
    "reciprocal": "reciprocal",
    "trunc": "trunc",
    "where": "where",
}
COMPARISONS = {"lt", "ne", "eq"}
OF_INTEGERS = {"and", "or", "xor", "shl", "shr", "cdiv", "floordiv", "cmod", "floormod"}
OF_FLOATS = {"fdiv", "sqrt", "sin", "exp2", "log2", "reciprocal", "trunc"}
# tinygrad has no such op of these: its and, or, xor of bools are there
NOT_OF_BOOLS = {"shl", "shr", "cdiv", "floordiv", "cmod", "floormod", "pow", "sub", "neg"}
NEAR = {"sin", "exp2", "log2", "pow"}
"""What each library computes by a series of its own, to some units in the last place."""
MOST_SAMPLES = 60

REDUCES: dict[str, tuple[str, Callable[..., Any]]] = {
    "add": ("sum", lambda x, axes, keep: torch.sum(x, axes, keep, dtype=x.dtype)),
    "max": ("amax", torch.amax),
}


def find_op(name: str) -> Any:
    name, _, variant = name.partition(" ")
    variant = variant or ("no_rounding_mode" if name == "div" else "")
    return next(op for op in op_db if op.name == name and op.variant_test_name == variant)


def list_samples(op: Any, dtype: Any) -> Iterator[Any]:
    """The inputs of the database, those at the ends of the dtype with them."""
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = itertools.chain(op.sample_inputs("cpu", dtype), op.reference_inputs("cpu", dtype))
        yield from itertools.islice(every, MOST_SAMPLES)


def to_numpy(x: Any) -> NDArray[Any]:
    x = x.detach().cpu()
    if x.dtype in {torch.bfloat16, *NARROW.values()}:
        x = x.float()
    return x.resolve_conj().resolve_neg().numpy()


def check(value: RangedArray, right: NDArray[Any], dtype: str, units: float, what: object) -> int:
    """Compares what is defined; floats may differ by so many units of their last place. Returns how many numbers."""
    assert value.numbers.shape == right.shape, what
    defined = np.ones(right.shape, bool) if value.undefined is None else ~np.broadcast_to(value.undefined, right.shape)
    got, right = np.asarray(value.numbers)[defined], right[defined]
    if dtype not in EPSILON:
        assert np.array_equal(got, right), what
        return got.size
    got, right = got.astype(np.float64), right.astype(np.float64)
    # numbers so small that they are as far apart as the smallest normal numbers
    smallest = {"half": 2.0**-24, "bfloat16": 2.0**-133, "float": 2.0**-149, "double": 2.0**-1074}.get(dtype, 2.0**-16)
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(got - right) <= units * (EPSILON[dtype] * np.abs(right) + smallest)
    same = (got == right) | (np.isnan(got) & np.isnan(right)) | (near & np.isfinite(right))
    assert same.all(), (what, got[~same][:5], right[~same][:5])
    return got.size


def is_left_out(op: str, dtype: str) -> bool:
    is_float = dtype in EPSILON
    if dtype == "bool":
        return op in NOT_OF_BOOLS or op in OF_FLOATS
    return (op in OF_INTEGERS and is_float) or (op in OF_FLOATS and not is_float)


CASES = [
    (op, dtype)
    for op in ELEMENTWISE
    for dtype in DTYPES
    if not is_left_out(op, dtype) and DTYPES[dtype] in find_op(ELEMENTWISE[op]).supported_dtypes("cpu")
]


def take_operands(op: str, sample: Any, dtype: Any) -> Sequence[Any] | None:
    """The Tensors of a sample; None if tinygrad has no op for it, or it mixes dtypes."""
    if set(sample.kwargs) - {"rounding_mode"}:
        return None
    operands = [sample.args[0], sample.input, *sample.args[1:]] if op == "where" else [sample.input, *sample.args]
    if not all(isinstance(x, torch.Tensor) for x in operands):
        return None
    values = operands[1:] if op == "where" else operands
    if any(x.dtype != dtype for x in values) or any(x.numel() > 100_000 for x in operands):
        return None
    return torch.broadcast_tensors(*operands)


@pytest.mark.parametrize(("op", "dtype"), CASES, ids=[f"{op}-{dtype}" for op, dtype in CASES])
def test_elementwise(op: str, dtype: str) -> None:
    found = find_op(ELEMENTWISE[op])
    compared = 0
    for sample in list_samples(found, DTYPES[dtype]):
        operands = take_operands(op, sample, DTYPES[dtype])
        if operands is None:
            continue
        try:
            right = found(sample.input, *sample.args, **sample.kwargs)
        except (RuntimeError, ZeroDivisionError):
            # integers by zero, or to a negative power
            continue
        made = Maker()
        kinds = ["bool", dtype, dtype] if op == "where" else [dtype] * len(operands)
        slots = [made.input(to_numpy(x), kind) for x, kind in zip(operands, kinds, strict=True)]
        result = "bool" if op in COMPARISONS else dtype
        value = made.value(made.op(op, *slots, dtype=result))
        compared += check(value, to_numpy(right), result, 8 if op in NEAR else 1, (op, dtype, operands))
    assert compared > 10


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", REDUCES)
def test_reduces(op: str, dtype: str) -> None:
    name, reduce = REDUCES[op]
    compared = 0
    for sample in list_samples(find_op(name), DTYPES[dtype]):
        x, dim = sample.input, sample.kwargs.get("dim", sample.args[0] if sample.args else None)
        if not x.ndim or not x.numel() or (op == "add" and dtype == "bool"):
            continue
        axes = tuple(range(x.ndim)) if dim is None or dim == () else (dim,) if isinstance(dim, int) else tuple(dim)
        axes = tuple(axis % x.ndim for axis in axes)
        right = to_numpy(reduce(x, axes, True))
        made = Maker()
        value = made.value(made.reduce(op, made.input(to_numpy(x), dtype), axes))
        # torch adds in another order, of halves in float
        size = float(np.abs(to_numpy(x).astype(np.float64)).sum())
        units = 1 if op == "max" or dtype not in EPSILON else 2 + 4 * size / max(float(np.abs(right).min()), 1e-3)
        compared += check(value, right, dtype, units, (op, dtype, x, axes))
    assert compared > 5 or (op, dtype) == ("add", "bool")


@pytest.mark.parametrize("dtype", ["float", "int", "bool", "half"])
def test_products(dtype: str) -> None:
    torch.manual_seed(1)
    x = (torch.rand(5, 4, 3) * 3).to(DTYPES[dtype])
    made = Maker()
    value = made.value(made.reduce("mul", made.input(to_numpy(x), dtype), (1,)))
    check(value, to_numpy(torch.prod(x, 1, True).to(DTYPES[dtype])), dtype, 4, x)


# *** from dtype to dtype

ALL = {**DTYPES, **UNSIGNED, **NARROW}


def ends_and_others(dtype: str) -> Any:
    kind = ALL[dtype]
    torch.manual_seed(1)
    if kind.is_floating_point:
        info = torch.finfo(kind)
        numbers = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 127.0, 128.0, 255.0, 256.0, info.max, info.min, info.tiny]
        return torch.tensor([*numbers, *(torch.randn(200) * 50).tolist()], dtype=torch.double).to(kind)
    if kind == torch.bool:
        return torch.tensor([True, False])
    info = torch.iinfo(kind)
    numbers = [0, 1, 2, 127, 128, 255, 256, 32767, 65535, 65536, 2**24 + 1, info.max, info.max - 1]
    numbers += [-1, -2, -128, -129, info.min, info.min + 1]
    return torch.tensor([n for n in numbers if info.min <= n <= info.max], dtype=kind)


# torch rounds these twice
ROUNDED_TWICE = {("ulong", to) for to in (*NARROW, "half", "bfloat16", "float")}
CASTS = [pair for pair in itertools.product(ALL, ALL) if pair not in ROUNDED_TWICE]


@pytest.mark.parametrize(("source", "to"), CASTS)
def test_casts(source: str, to: str) -> None:
    x = ends_and_others(source)
    # torch has no cast of some unsigned integers to some others by itself
    right = x.to(torch.int64).to(ALL[to]) if source in UNSIGNED and source != "ulong" else x.to(ALL[to])
    numbers = x.view(torch.int64).numpy().view(np.uint64) if source == "ulong" else to_numpy(x)
    made = Maker()
    value = made.value(made.view_as("cast", made.input(numbers, source), to))
    assert check(value, to_numpy(right), to, 0, (source, to, x)) > 0


OF_ONE_SIZE = [
    (source, to)
    for source, to in itertools.permutations([name for name in ALL if name != "bool"], 2)
    if ALL[source].itemsize == ALL[to].itemsize
]


@pytest.mark.parametrize(("source", "to"), OF_ONE_SIZE)
def test_bitcasts_of_one_size(source: str, to: str) -> None:
    x = ends_and_others(source)
    right = x.view(ALL[to])
    numbers = x.view(torch.int64).numpy().view(np.uint64) if source == "ulong" else to_numpy(x)
    made = Maker()
    value = made.value(made.view_as("bitcast", made.input(numbers, source), to))
    assert check(value, to_numpy(right), to, 0, (source, to, x)) > 0
