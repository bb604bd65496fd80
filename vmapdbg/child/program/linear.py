"""A linear program in terms that no tinygrad release owns: buffers, accesses, loops, threads, variables, expressions.

`linear_reader.read_linear(uops)` takes the linear UOps of a compiled kernel (`CompiledKernel.uops`, `ProgramSpec.uops`)
from 0.12.0 on. The releases' differences end here: DEFINE_GLOBAL/LOCAL/REG or PARAM/BUFFER, PtrDType or none, the gate
on INDEX or LOAD or in an IF, IDIV/MOD or CDIV/CMOD/FLOORDIV/FLOORMOD, constants with or without a cast, a vector access
as a cast pointer or a SHRINK. A UOp has one Value, so equal values are one object."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vmapdbg.model.ops import ARITHMETIC
from vmapdbg.model.vocabulary import AccessKind
from vmapdbg.reference.graph import Unknown

UOp = Any

CORE = "core_id"
"""The variable that counts the threads of the CPU, from 0.13 on."""
_UNSIZED = 1 << 800
INTEGERS = {"index": (-_UNSIZED, _UNSIZED), "weakint": (-_UNSIZED, _UNSIZED)}
"""tinygrad's names of the integers, with the bounds of each. The first two have no size: a scheduler's range."""
for _name, _bits in {"char": 8, "short": 16, "int": 32, "long": 64}.items():
    INTEGERS[_name] = -(1 << _bits - 1), (1 << _bits - 1) - 1
    INTEGERS[f"u{_name}"] = 0, (1 << _bits) - 1


@dataclass(eq=False)
class Value:
    """One value of the program. `op` is "const", "loop", "thread", "variable", "load", "cast", a name of
    `model.ops.ARITHMETIC`, or tinygrad's own name in lower case. `dtype` is tinygrad's scalar ("int", "float", "bool"),
    `itemsize` its bytes, `lanes` their number. `bounds` of an integer: None if unknown. `sources` of a load are its
    result if its gate does not hold. `operations` counts its arithmetic ops, 0 if it only moves or packs values.
    `compute`: gives its numbers by the steps of its `sources`, which are loops; None if the op says how."""

    op: str
    sources: "tuple[Value, ...]"
    dtype: str
    itemsize: int
    lanes: int = 1
    constant: int | float | bool | None = None
    name: str = ""
    bounds: tuple[int, int] | None = None
    operations: int = 0
    compute: Callable[[Sequence[Any]], Any] | None = None

    @property
    def limits(self) -> tuple[int, int]:
        """tinygrad's bounds of a value, or the bounds of its dtype."""
        return self.bounds or INTEGERS.get(self.dtype, INTEGERS["weakint"])

    @property
    def keeps_source(self) -> bool:
        """Whether a cast from an integer to an integer keeps all values that its source may have."""
        (source,) = self.sources
        if self.dtype not in INTEGERS or (source.dtype not in INTEGERS and source.dtype != "bool"):
            return False
        lowest, highest = INTEGERS[self.dtype]
        least, most = source.limits
        return lowest <= least and most <= highest


@dataclass(eq=False)
class ProgramLoop(Value):
    """A loop, thread or variable that runs `trips` times; `symbolic`: a variable decides, and `trips` is the most."""

    trips: int = 1
    symbolic: bool = False

    @property
    def is_thread(self) -> bool:
        return self.op == "thread" or self.name == CORE  # from 0.13 on the CPU's threads are a variable


@dataclass(frozen=True)
class Buffer:
    """Memory. `space`: "global", "local" (of a group of threads), "register" or "image" (global, indexed by pairs).
    `name` is its name in the source, `slot` its argument number, `size` in elements (negative: unknown)."""

    slot: int
    name: str
    size: int
    dtype: str
    itemsize: int
    space: str


@dataclass(eq=False)
class MemoryAccess:
    """An access of `width` elements from `index` on, if `gate` holds (None: always). `value` is stored, or loaded.
    `loops`: threads, then loops around it, outermost first. `follows`: stores before it that a load may read."""

    buffer: Buffer
    index: Value
    gate: Value | None
    is_store: bool
    value: Value
    width: int
    loops: tuple[ProgramLoop, ...]
    follows: "tuple[MemoryAccess, ...]" = ()

    @property
    def kind(self) -> AccessKind:
        return "store" if self.is_store else "load"

    @property
    def addressing(self) -> list[Value]:
        """The values that decide whether and where it accesses memory."""
        return [self.index] if self.gate is None else [self.index, self.gate]


@dataclass
class LinearProgram:
    """A whole program. `computed`: its values in order, without constants, loaded values and loops, each with the
    threads and loops around it, outermost first. `threads` are also variables that a launch goes through (`core_id`).
    `order`: loops, where they begin and where they end, accesses, and "barrier". `addressing`: addresses, gates (also
    of ops that are no access), numbers of threads. `open_loops` have no END. `uops` are what values were read from."""

    buffers: list[Buffer] = field(default_factory=list)
    accesses: list[MemoryAccess] = field(default_factory=list)
    computed: list[tuple[Value, tuple[ProgramLoop, ...]]] = field(default_factory=list)
    loops: list[ProgramLoop] = field(default_factory=list)
    order: list[MemoryAccess | ProgramLoop | str] = field(default_factory=list["MemoryAccess | ProgramLoop | str"])
    threads: list[ProgramLoop] = field(default_factory=list)
    addressing: list[Value] = field(default_factory=list)
    loaded: dict[Value, MemoryAccess] = field(default_factory=dict)
    open_loops: list[ProgramLoop] = field(default_factory=list)
    uops: dict[Value, UOp] = field(default_factory=dict)


# *** expressions


TEXT = {op.name: op.text for op in ARITHMETIC.values() if op.text is not None} | {"cast": "{}"}
"""The ops that an address or a gate may have -> how they are written."""


def walk(roots: Iterable[Value], ends: Container[Value]) -> list[Value]:
    """Returns the parts of expressions, sources first, down to and with `ends` and loaded values."""
    found: dict[Value, None] = {}

    def visit(value: Value) -> None:
        if value in found:
            return
        if value not in ends and value.op != "load":
            for source in value.sources:
                visit(source)
        found[value] = None

    for root in roots:
        visit(root)
    return list(found)


def find_loops(expression: Value, sizes: Mapping[Value, int]) -> frozenset[Value]:
    """Returns the loops and threads that an expression uses. Raises Unknown if it uses anything else."""
    parts = walk([expression], sizes)
    if (unknown := find_unknown(parts, sizes)) is not None:
        raise Unknown(f"{unknown.op} in an address")
    return frozenset(sizes.keys() & parts)


def find_unknown(parts: Iterable[Value], loops: Container[Value]) -> Value | None:
    """Returns a part of an expression that the steps of `loops` do not decide: a loaded value, a variable."""
    others = (value for value in parts if value not in loops and value.compute is None)
    return next((value for value in others if value.op not in TEXT and value.op != "const"), None)


def write_expression(expression: Value, names: Mapping[Value, str]) -> str:
    """Returns an address or a gate as text, its loops by the names that the source gives them."""
    written = dict(names)
    for value in walk([expression], names):
        leaves = {"const": str(value.constant), "load": "a loaded value", "variable": value.name}
        operands = map(written.get, value.sources)
        written.setdefault(value, leaves.get(value.op) or TEXT.get(value.op, value.op.upper()).format(*operands))
    text = written[expression]
    while expression.op == "cast":
        (expression,) = expression.sources
    # the parts of a text need brackets, the whole does not
    return text[1:-1] if TEXT.get(expression.op, "").startswith("(") else text


def split_terms(address: Value, ends: Container[Value] = ()) -> tuple[int, list[tuple[Value, int]]]:
    """Returns an address as a constant and terms (expression, factor); `ends` are not taken apart."""
    base, terms = 0, dict[Value, int]()
    todo = [(address, 1)]
    while todo:
        value, scale = todo.pop()
        op = value.op if value not in ends else ""  # an end is not taken apart
        match op, value.sources:
            case _ if isinstance(value.constant, int):
                base += value.constant * scale
            case "add", (left, right):
                todo += [(left, scale), (right, scale)]
            case "sub", (left, right):
                todo += [(left, scale), (right, -scale)]
            case "mul", (left, Value(constant=int(factor))):
                todo.append((left, scale * factor))
            case "shl", (left, Value(constant=int(bits))):
                todo.append((left, scale << bits))
            case "cast", (source,) if value.keeps_source:
                todo.append((source, scale))
            case _:
                terms[value] = terms.get(value, 0) + scale
    return base, list(terms.items())


def split_conditions(gate: Value | None) -> list[Value]:
    """Returns the conditions of a gate; all of them must hold. None: no conditions."""
    if gate is None:
        return []
    if gate.op == "and" and gate.dtype == "bool":
        return [part for source in gate.sources for part in split_conditions(source)]
    return [gate]
