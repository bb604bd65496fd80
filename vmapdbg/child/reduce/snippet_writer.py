"""Writes a tensor graph as a Python file that builds the same graph again. Runs in the child.

The file uses the Tensor API, `vmapin` and `vmapout` with explicit vargs, and literal input data. The graph that it
builds has the same kernels as the original, with the same AST keys. Each node has some forms, such as `{0} + {1}`: text
with places for the texts of other nodes. The first form that builds exactly this node is written.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tinygrad.device import Buffer, Device
from tinygrad.dtype import DType, dtypes
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

from vmapdbg.child.memory import read_buffer
from vmapdbg.child.reduce.smaller import device_of, is_value

Form = tuple[str, tuple[UOp, ...]]
"""A text with a place for each of some nodes."""

_LONGEST = 64
"""An expression longer than this gets a name."""
_LITERALS = 1024
"""Buffers with more elements than this are written as bytes, not as numbers."""
_LARGEST = 16 << 20
"""The most bytes of one buffer that a snippet can hold."""
_WIDTH = 110
_IMPORTS = {
    "math": ("inf", "nan"),
    "tinygrad": ("Device", "Tensor", "UOp", "dtypes"),
    "tinygrad.dtype": ("ConstFloat",),
    "tinygrad.uop.ops": ("AxisType", "Ops"),
}
"""The names that a file may use, by their modules."""

# ops by their names: releases have other ops
_OPERATORS = {"ADD": "+", "MUL": "*", "CMPLT": "<", "CMPNE": "!=", "AND": "&", "OR": "|", "XOR": "^"}
_INDEX_OPERATORS = {**_OPERATORS, "IDIV": "//", "FLOORDIV": "//", "MOD": "%", "FLOORMOD": "%"}
_REDUCED = frozenset({"REDUCE_AXIS", "REDUCE"})
_REDUCES = {"ADD": "sum", "MAX": "max", "MUL": "prod"}
# ConstFloat is a class from 0.13 on: a float in a graph
_NAMES = {
    name: getattr(import_module(module), name)
    for module, names in _IMPORTS.items()
    for name in names
    if hasattr(import_module(module), name)
}
"""What a form may name."""


class WriteError(ValueError):
    """The graph cannot be written as a snippet; the message is one sentence that says why."""

    def __init__(self, reason: str):
        super().__init__(f"the graph cannot be written as a snippet: {reason}")


def write_snippet(outputs: Sequence[Tensor], switches: Mapping[str, int | str] = MappingProxyType({})) -> str:
    """Returns a Python file that builds `outputs` again, realizes them together and prints them.

    Inputs get the contents that their buffers have now. `switches` of tinygrad are set before it is imported. The
    Tensors are not changed, nothing is realized. Raises WriteError for kernels, shards and inputs over 16 MB.
    """
    head: list[str] = []
    if switches:
        head = ["import os", "", *(f'os.environ["{name}"] = "{value}"' for name, value in switches.items()), ""]
    body = _Writer([output.uop for output in outputs]).write()
    return "\n".join([*head, *_write_imports(body), "", body])


class _Writer:
    """Writes one graph. A node with one reader is written inside the reader's expression, other nodes get a name."""

    def __init__(self, outputs: list[UOp]):
        self.outputs = outputs
        self.nodes = list(UOp.sink(*outputs).toposort())
        self.readers = Counter(s for u in self.nodes for s in u.src)
        # node -> its text in other texts, with brackets around an operator; and its text alone
        self.texts: dict[UOp, str] = {}
        self.alone: dict[UOp, str] = {}
        # RANGEs by their names in the file
        self.ranges: dict[str, UOp] = {}
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()

    def write(self) -> str:
        for u in self.nodes:
            if u.op is Ops.RANGE:
                self.name_range(u)
        if self.lines:
            self.lines.append("")
        forms: dict[UOp, Form] = {}
        reads = Counter(self.outputs)
        # the readers of a node choose their forms first
        for u in reversed(self.nodes):
            if u in reads:
                forms[u] = next(form for form in self.list_forms(u) if self.is_exact(u, form))
                reads.update(forms[u][1])
        for u in self.nodes:
            if u in forms:
                self.write_node(u, forms[u], reads[u])
        return "\n".join(self.lines + self.write_results()) + "\n"

    def write_results(self) -> list[str]:
        many = len(self.outputs) > 1
        named = {f"out{number}" if many else "out": u for number, u in enumerate(self.outputs)}
        lines = [f"{name} = {self.alone[u]}" for name, u in named.items()]
        # Python has no numbers of some dtypes
        wide = {name: ".float()" if u.dtype.fmt is None else "" for name, u in named.items()}
        prints = [f'print("{name}", {name}{wide[name]}.tolist())' for name in named]
        return ["", *lines, f"Tensor.realize({', '.join(named)})", *prints]

    def is_exact(self, u: UOp, form: Form) -> bool:
        """Returns whether a form builds exactly this node. The form of an input or a constant need not."""
        text, operands = form
        if not text or u.op is Ops.CONST:
            return True
        values = {f"x{i}": Tensor(s, device=s.device) for i, s in enumerate(operands)}
        try:
            return eval(text.format(*values), {**_NAMES, **self.ranges, **values}).uop is u
        except Exception:  # the method refuses such a value
            return False

    def write_node(self, u: UOp, form: Form, reads: int) -> None:
        text = alone = form[0].format(*(self.texts[s] for s in form[1])) or self.write_input(u)
        if form[0].startswith("("):
            alone = text[1:-1]
        if not text.isidentifier() and (reads > 1 or len(alone) > _LONGEST):
            text = alone = self.assign("t", alone)
        self.texts[u], self.alone[u] = text, alone

    def assign(self, prefix: str, text: str) -> str:
        """Adds a line that assigns a value to a new name such as `t3`, and returns the name."""
        name = f"{prefix}{self.counts[prefix]}"
        self.counts[prefix] += 1
        self.lines.append(f"{name} = {text}")
        return name

    # *** forms

    def list_forms(self, u: UOp) -> Iterator[Form]:
        """Yields the forms of a node, the nicest first. The text of an input is empty. Raises WriteError at the end."""
        if type(u.dtype).__name__ == "ImageDType" or not isinstance(device_of(u), str):
            raise WriteError(f"its {u.op.name} is an image, or sharded over devices")
        if self.input_of(u) is not None:
            yield "", ()
        elif u.op is Ops.CONST:
            yield _write_const(u), ()
        else:
            yield from self.list_calls(u, tuple(s for s in u.src if is_value(s)))
        raise WriteError(f"no method of Tensor makes its {u.op.name}")

    def list_calls(self, u: UOp, operands: tuple[UOp, ...]) -> Iterator[Form]:
        """Yields the forms that call an operator or a method of Tensor."""
        if u.op.name in _OPERATORS:
            yield from _list_operators(u)
        if u.op is Ops.RESHAPE and u.src[0].op.name in _REDUCED and self.readers[u.src[0]] == 1:
            yield from _list_reduces(u.src[0], "")
        if u.op.name in _REDUCED and isinstance(u.arg, tuple):
            yield from _list_reduces(u, ", keepdim=True")
            yield from _list_reduces(u, "")
        elif u.op is Ops.REDUCE:
            indices = ", ".join(map(self.write_index, u.src[1:]))
            yield f"Tensor({{0}}.uop.reduce({indices}, arg=Ops.{u.arg.name}))", operands
        # most methods have the name of their op
        method = "to" if u.op is Ops.COPY else u.op.name.lower()
        yield f"{{0}}.{method}({self.write_arguments(u)})", operands
        arguments = ", ".join([f"Ops.{u.op.name}", *(f"{{{i}}}" for i in range(1, len(operands)))])
        yield f"{{0}}.alu({arguments})", operands
        # no method makes it: the node itself
        places = iter(range(len(operands)))
        sources = [f"{{{next(places)}}}.uop" if is_value(s) else self.write_node_of_sizes(s) for s in u.src]
        yield f"Tensor(UOp(Ops.{u.op.name}, {u.dtype!r}, {_write_tuple(sources)}, {u.arg!r}))", operands

    def write_node_of_sizes(self, u: UOp) -> str:
        """Returns the text of a node that is no value: a size, an index, or a number in another node."""
        sources = _write_tuple(map(self.write_node_of_sizes, u.src))
        return f"UOp(Ops.{u.op.name}, {u.dtype!r}, {sources}, {u.arg!r})"

    def write_arguments(self, u: Any) -> str:
        """Returns the arguments of the method of Tensor that makes a node of one operand."""
        if u.op in {Ops.CAST, Ops.BITCAST}:
            return repr(u.dtype)
        if u.op is Ops.COPY:
            return repr(None if u.device == Device.DEFAULT else u.device)
        if u.op in {Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE}:
            return _write_shape(map(self.write_index, u.marg))
        if u.op in {Ops.PAD, Ops.SHRINK}:
            return _write_tuple(_write_tuple(map(self.write_index, pair)) for pair in u.marg)
        if u.op is Ops.FLIP:
            return ", ".join(str(i) for i, flipped in enumerate(u.marg) if flipped)
        if u.op.name in {"VMAPIN", "VMAPOUT"}:
            return _write_tuple(map(self.write_index, u.src[1:]))
        return ""

    # *** inputs

    def input_of(self, u: UOp) -> UOp | None:
        """Returns the BUFFER that a node reshapes; None if it does anything else."""
        source = u
        while source.op is Ops.RESHAPE and (source is u or self.readers[source] == 1):
            source = source.src[0]
        if source.op is not Ops.BUFFER or u._shape is None or not all(isinstance(size, int) for size in u._shape):
            return None
        if source is not u and self.readers[source] > 1:
            return None
        return source

    def write_input(self, u: Any) -> str:
        source = self.input_of(u)
        assert source is not None
        where = ""
        if source.device != Device.DEFAULT:
            where = f", device={source.device!r}"
        buffer = source.buffer
        assert isinstance(buffer, Buffer)
        if not buffer.is_allocated():
            return self.assign("x", f"Tensor.empty({_write_shape(u.shape)}, dtype={source.dtype!r}{where})")
        return self.assign("x", _write_data(read_buffer(buffer), source.dtype, u.shape, where) + ".realize()")

    # *** indices

    def name_range(self, u: Any) -> None:
        """Adds the line of a RANGE."""
        if len(u.arg) > 2 or len(u.src) > 1:
            raise WriteError(f"it has the RANGE {u.arg} of a kernel in it")
        size = self.write_index(u.src[0])
        name = self.texts[u] = self.assign("r", f"UOp.range({size}, {u.arg[0]}, AxisType.{u.arg[-1].name})")
        self.ranges[name] = u

    def write_index(self, u: Any) -> str:
        """Returns the text of an index expression: numbers, RANGEs, and operators on them."""
        if not isinstance(u, UOp):
            return str(u)
        if u.op is Ops.CONST:
            return str(u.arg)
        if u in self.texts:
            return self.texts[u]
        if u.op.name in _INDEX_OPERATORS:
            left, right = map(self.write_index, u.src)
            return f"({left} {_INDEX_OPERATORS[u.op.name]} {right})"
        raise WriteError(f"an index has {u.op.name} in it")


def _list_operators(u: UOp) -> Iterator[Form]:
    """Yields a node as an operator between a Tensor and a number, and between two Tensors."""
    left, right = u.src
    sign = _OPERATORS[u.op.name]
    if (number := _number_of(right)) is not None:
        yield f"({{0}} {sign} {number!r})", (left,)
    if (number := _number_of(left)) is not None:
        yield f"({number!r} {sign} {{0}})", (right,)
    yield f"({{0}} {sign} {{1}})", (left, right)


def _number_of(u: UOp) -> Any:
    """Returns the number that a node has in some shape, None if it has none."""
    while u.op in {Ops.RESHAPE, Ops.EXPAND}:
        u = u.src[0]
    if u.op is Ops.CONST and (dtypes.is_float(u.dtype) or dtypes.is_int(u.dtype)):
        return _plain(u.arg)
    return None


def _plain(number: Any) -> Any:
    """Returns a constant as Python writes it: tinygrad's own floats are floats."""
    return float(number) if isinstance(number, float) else number


def _list_reduces(u: UOp, keepdim: str) -> Iterator[Form]:
    op, axes = u.arg
    if isinstance(axes, int):
        # from 0.14 on it is the number of axes, which come first
        axes = tuple(range(axes))
    if op.name in _REDUCES and axes:
        chosen = axes[0] if len(axes) == 1 else axes
        # without a dtype, Tensor.sum and prod compute small dtypes in larger ones
        for dtype in ("", f", dtype={u.dtype!r}"):
            yield f"{{0}}.{_REDUCES[op.name]}({chosen}{keepdim}{dtype})", u.src


def _write_const(u: UOp) -> str:
    # all digits: the number is part of a kernel's key
    arguments = [repr(_plain(u.arg)), f"dtype={u.dtype!r}"]
    if device_of(u) != Device.DEFAULT:
        arguments.append(f"device={u.device!r}")
    if any(s.op.name in {"UNIQUE", "LUNIQUE"} for s in u.src):
        arguments.append("_force_unique=True")
    return f"Tensor({', '.join(arguments)})"


def _write_tuple(parts: Iterable[str]) -> str:
    written = list(parts)
    return f"({', '.join(written)}{',' * (len(written) == 1)})"


# *** the text around the graph


def _write_shape(shape: Iterable[Any]) -> str:
    return ", ".join(map(str, shape)) or "()"


def _write_data(data: bytes, dtype: DType, shape: tuple[int, ...], where: str) -> str:
    """Returns the text of a lazy Tensor of `shape` with these bytes: nested lists, or bytes if it is large. `where` is
    the text of the argument that says its device, if it needs one. Raises WriteError."""
    count = math.prod(shape)
    if not count:
        return f"Tensor.empty({_write_shape(shape)}, dtype={dtype!r}{where})"
    if count > _LITERALS or dtype.fmt is None:
        text, stored = _write_bytes(data, dtype, where), (count,)
    else:
        # a list cannot have shape ()
        stored = shape or (1,)
        numbers = _write_numbers(np.frombuffer(data, dtype.fmt).reshape(stored))
        text = f"Tensor({numbers}, dtype={dtype!r}{where})"
        if len(text) > _WIDTH:
            lines = textwrap.wrap(numbers, _WIDTH, initial_indent="    ", subsequent_indent="    ")
            text = "\n".join(["Tensor(", *lines]) + f",\n    dtype={dtype!r}{where},\n)"
    if stored != shape:
        text += f".reshape({_write_shape(shape)})"
    return text


def _write_numbers(numbers: NDArray[Any]) -> str:
    """Returns nested lists. numpy writes the shortest text that has the same bits in the dtype."""
    parts = map(str, numbers) if numbers.ndim == 1 else map(_write_numbers, numbers)
    return f"[{', '.join(parts)}]"


def _write_bytes(data: bytes, dtype: DType, where: str) -> str:
    if len(data) > _LARGEST:
        raise WriteError(f"an input of {len(data):,} bytes is too large for a snippet, which holds {_LARGEST:,}")
    lines = [f'        "{line}"\n' for line in textwrap.wrap(data.hex(), _WIDTH - 10)]
    return f"Tensor(\n    bytes.fromhex(\n{''.join(lines)}    ),\n    dtype={dtype!r}{where},\n)"


def _write_imports(body: str) -> list[str]:
    """Returns the import lines for the names that a text uses."""
    lines: list[str] = []
    for module, names in _IMPORTS.items():
        if module == "tinygrad" and lines:
            lines.append("")
        if used := [name for name in names if name in body]:
            lines.append(f"from {module} import {', '.join(used)}")
    return lines
