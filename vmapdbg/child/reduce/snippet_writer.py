"""Writes a tensor graph as a Python file that builds the same graph again. Runs in the child.

The file uses the Tensor API, `vmapin` and `vmapout` with explicit vargs, and literal input data. The graph that it
builds has the same kernels as the original, with the same AST keys. Nodes that the API cannot make are built from UOps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tinygrad.device import Buffer, Device
from tinygrad.dtype import ImageDType, dtypes, sum_acc_dtype
from tinygrad.tensor import Tensor
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

from vmapdbg.child.reduce.snippet_text import (
    CANNOT,
    FLOAT_UNARY,
    INDEX_OPERATORS,
    OPERATORS,
    REDUCES,
    SnippetFile,
    WriteError,
    find_scalar,
    ints,
    is_operator,
    is_python_data,
    write_arg,
    write_data,
    write_shape,
    write_switches,
    write_tuple,
)


class Outline:
    """The nodes of a graph, their readers, and in how many texts of other nodes each is written (`reads`)."""

    def __init__(self, outputs: list[UOp]):
        self.outputs = outputs
        self.nodes = list(UOp.sink(*outputs).toposort())
        self.readers: dict[UOp, list[UOp]] = {u: [] for u in self.nodes}
        for u in self.nodes:
            for s in u.src:
                self.readers[s].append(u)
        self.reads = self.count_reads()

    def count_reads(self) -> dict[UOp, int]:
        """Counts how often each node is written in the text of another node; others are left out."""
        reads = {u: self.outputs.count(u) for u in self.outputs}
        for u in reversed(self.nodes):
            if u in reads and is_tensor(u):
                for s in self.find_operands(u):
                    reads[s] = reads.get(s, 0) + 1
        return reads

    def find_operands(self, u: UOp) -> list[UOp]:
        """Returns the sources that are written as Tensors. An input has none; a plain number is no Tensor."""
        if self.find_input(u) is not None:
            return []
        if (reduced := self.find_dropped(u)) is not None:
            return [reduced.src[0]]
        scalar = find_scalar(u)
        if scalar is not None:
            return [s for i, s in enumerate(u.src) if i != scalar]
        return [s for s in u.src if is_tensor(s)]

    def find_input(self, u: UOp) -> UOp | None:
        """Returns the BUFFER, or the COPY of Python numbers, that a node reshapes; None if it does anything else."""
        source = u
        while source.op is Ops.RESHAPE and (source is u or len(self.readers[source]) == 1):
            source = source.src[0]
        if not ints(u._shape) or (source is not u and len(self.readers[source]) > 1):
            return None
        if source.op is Ops.BUFFER:
            return source
        # Tensor([...]) that is not realized yet
        if u.op is Ops.COPY and is_python_data(u) and u.device == Device.DEFAULT:
            return u
        return None

    def find_dropped(self, u: UOp) -> UOp | None:
        """Returns the reduce whose axes a RESHAPE drops, as `sum(axis)` does; None if there is none."""
        if u.op is not Ops.RESHAPE or u.src[0].op is not Ops.REDUCE_AXIS or len(self.readers[u.src[0]]) != 1:
            return None
        reduced = u.src[0]
        kept = tuple(s for i, s in enumerate(reduced.src[0].shape) if i not in reduced.arg[1])
        if kept != u.shape or reduced.arg[0] not in REDUCES:
            return None
        return reduced


def is_tensor(u: UOp) -> bool:
    """Tells whether a node is written as a Tensor: not indices, devices, or nodes without a device."""
    if u.op in {Ops.DEVICE, Ops.UNIQUE, Ops.SINK, Ops.RANGE} or u.dtype.scalar() == dtypes.index:
        return False
    return u.op is not Ops.DEFINE_VAR and u._device is not None


WIDTH = 64
"""An expression longer than this gets a name."""


def write_snippet(
    outputs: Sequence[Tensor], comment: str = "", switches: Mapping[str, int | str] = MappingProxyType({})
) -> str:
    """Returns a Python file that builds `outputs` again, realizes them together and prints them.

    Inputs get the contents that their buffers have now. `comment` is the head of the file; `switches` of tinygrad are
    set before it is imported. The Tensors are not changed, nothing is realized. Raises WriteError for kernels, shards
    and inputs over 16 MB.
    """
    writer = _Writer([output.uop for output in outputs])
    head = "".join(f"# {line}".rstrip() + "\n" for line in comment.splitlines())
    body = writer.write()
    return f"{head}{write_switches(switches)}{writer.file.write_imports()}\n{body}"


class _Writer:
    """Writes one graph. A node with one reader is written inside the reader's expression, other nodes get a name."""

    def __init__(self, outputs: list[UOp]):
        self.outputs = outputs
        self.outline = Outline(outputs)
        # node -> its text, and whether it needs brackets before a dot
        self.texts: dict[UOp, tuple[str, bool]] = {}
        self.file = SnippetFile()

    # *** the file

    def write(self) -> str:
        for u in self.outline.nodes:
            if u.op in CANNOT:
                raise WriteError(CANNOT[u.op])
        ranges = [u for u in self.outline.nodes if u.op is Ops.RANGE]
        for r in ranges:
            self.name_range(r)
        if ranges:
            self.file.lines.append("")
        for u in self.outline.nodes:
            if u in self.outline.reads and is_tensor(u) and u not in self.texts:
                self.texts[u] = self.shorten(u, *self.write_node(u))
        return "\n".join(self.file.lines + self.write_results()) + "\n"

    def write_results(self) -> list[str]:
        names = ["out"]
        if len(self.outputs) > 1:
            names = [f"out{number}" for number in range(len(self.outputs))]
        lines = [""]
        for name, u in zip(names, self.outputs, strict=True):
            lines.append(f"{name} = {self.texts[u][0]}")
        lines.append(f"Tensor.realize({', '.join(names)})")
        for name, u in zip(names, self.outputs, strict=True):
            # Python has no numbers of some dtypes
            wide = ".float()" * (u.dtype.fmt is None)
            lines.append(f'print("{name}", {name}{wide}.tolist())')
        return lines

    def shorten(self, u: UOp, text: str, brackets: bool) -> tuple[str, bool]:
        """Gives the node a name if its text is long, or if it has several readers."""
        if text.isidentifier() or (self.outline.reads[u] <= 1 and len(text) <= WIDTH and "\n" not in text):
            self.file.note_names(text)
            return text, brackets
        return self.file.assign("t", text), False

    def name_range(self, r: UOp) -> None:
        self.file.use("UOp", "AxisType")
        size = self.write_index(r.src[0])
        kind = f"AxisType.{r.arg[-1].name}"
        if len(r.arg) > 2 or len(r.src) > 1:
            raise WriteError(f"it has the RANGE {r.arg} of a kernel in it")
        self.texts[r] = (self.file.assign("r", f"UOp.range({size}, {r.arg[0]}, {kind})"), False)

    # *** nodes

    def write_node(self, u: UOp) -> tuple[str, bool]:
        """Returns the text of a node, and whether it needs brackets before a dot."""
        if isinstance(u.dtype, ImageDType) or not isinstance(u.device, str):
            raise WriteError(f"{u.op.name} is an image or sharded")
        if (given := self.write_input(u)) is not None:
            return given, False
        if u.op is Ops.CONST:
            return self.write_const(u), False
        if any(not is_tensor(s) and s.dtype.scalar() != dtypes.index and s.op is not Ops.DEVICE for s in u.src):
            return self.write_uop(u), False
        if u.op in GroupOp.Movement:
            return self.write_movement(u), False
        if u.op in {Ops.REDUCE_AXIS, Ops.REDUCE}:
            return self.write_reduce(u), False
        if u.op.name in {"VMAPIN", "VMAPOUT"}:
            if u.arg is not None:
                return self.write_uop(u), False
            return f"{self.dot(u.src[0])}.{u.op.name.lower()}({write_tuple(map(self.write_index, u.src[1:]))})", False
        if u.op in GroupOp.ALU:
            return self.write_alu(u)
        return self.write_other(u), False

    def write_other(self, u: UOp) -> str:
        source = self.dot(u.src[0]) if u.src else ""
        if u.op is Ops.CAST and len(u.src) == 1:
            return f"{source}.cast({u.dtype!r})"
        if u.op is Ops.BITCAST and u.dtype.itemsize == u.src[0].dtype.itemsize:
            return f"{source}.bitcast({u.dtype!r})"
        if u.op is Ops.CONTIGUOUS and u.arg is None and len(u.src) == 1 and not u.src[0].is_contiguous():
            return f"{source}.contiguous()"
        if u.op is Ops.DETACH:
            return f"{source}.detach()"
        if u.op is Ops.CONTIGUOUS_BACKWARD:
            return f"{source}.contiguous_backward()"
        if u.op is Ops.COPY and u.arg is None and u.src[0].device != u.device:
            device = "None" if u.device == Device.DEFAULT else repr(u.device)
            return f"{source}.to({device})"
        if u.op is Ops.ASSIGN and len(u.src) == 2 and u.arg is None:
            # Tensor.assign would change the Tensor for all later lines too
            return f"Tensor({source}.uop.assign({self.dot(u.src[1])}.uop))"
        return self.write_uop(u)

    def write_uop(self, u: UOp) -> str:
        """The way that can say everything: a UOp of its parts."""
        return f"Tensor({self.write_parts(u)})"

    def write_parts(self, u: UOp) -> str:
        self.file.use("UOp", "Ops", "dtypes")
        if u.op is Ops.CONST and not u.src:
            return f"UOp.const({u.dtype!r}, {self.write_value(u)})"
        sources = write_tuple(map(self.write_source, u.src))
        parts = [f"Ops.{u.op.name}", repr(u.dtype), sources]
        if u.arg is not None:
            parts.append(write_arg(u.arg))
        return f"UOp({', '.join(parts)})"

    def write_source(self, s: UOp) -> str:
        if s.op is Ops.DEVICE:
            return f"UOp(Ops.DEVICE, arg={self.write_device(s.arg)})"
        if is_tensor(s):
            return f"{self.dot(s)}.uop"
        if s.dtype.scalar() == dtypes.index:
            text = self.write_index(s)
            if s.op is Ops.CONST and s.dtype.count == 1:
                return f"UOp.const(dtypes.index, {text})"
            return text
        return self.write_parts(s)

    def write_device(self, device: Any) -> str:
        if device == Device.DEFAULT:
            self.file.use("Device")
            return "Device.DEFAULT"
        return repr(device)

    def dot(self, u: UOp) -> str:
        text, brackets = self.texts[u]
        if brackets:
            return f"({text})"
        return text

    # *** inputs and constants

    def write_input(self, u: UOp) -> str | None:
        source = self.outline.find_input(u)
        if source is None:
            return None
        if source.op is Ops.BUFFER:
            return self.write_buffer(source, u.shape, realize=True)
        return self.write_buffer(source.src[0].base, u.shape)

    def write_buffer(self, u: UOp, shape: Any, realize: bool = False) -> str:
        buffer = u.buffer
        if not isinstance(buffer, Buffer):
            raise WriteError("it is sharded over devices")
        # without realize, it is a copy of Python's numbers to the default device
        where = ""
        if realize and u.device != Device.DEFAULT:
            where = f", device={u.device!r}"
        self.file.use("dtypes")
        if not buffer.is_allocated():
            return self.file.assign("x", f"Tensor.empty({write_shape(shape)}, dtype={u.dtype!r}{where})")
        text = write_data(bytes(buffer.as_buffer()), u.dtype, shape, where)
        return self.file.assign("x", text + ".realize()" * realize)

    def write_const(self, u: UOp) -> str:
        self.file.use("dtypes")
        arguments = [self.write_value(u), f"dtype={u.dtype!r}"]
        if u.device != Device.DEFAULT:
            arguments.append(f"device={u.device!r}")
        if any(s.op in {Ops.UNIQUE, Ops.LUNIQUE} for s in u.src):
            arguments.append("_force_unique=True")
        return f"Tensor({', '.join(arguments)})"

    def write_value(self, u: UOp) -> str:
        # all digits: the number is part of a kernel's key
        text = repr(u.arg)
        self.file.note_names(f"({text}")
        return text

    # *** computed nodes

    def write_movement(self, u: UOp) -> str:
        if (reduced := self.outline.find_dropped(u)) is not None:
            return self.write_axis_reduce(reduced, keepdim=False)
        source = self.dot(u.src[0])
        if u.op is Ops.FLIP:
            axes = ", ".join(str(i) for i, flipped in enumerate(u.marg) if flipped)
            return f"{source}.flip({axes})"
        if u.op in {Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE}:
            return f"{source}.{u.op.name.lower()}({self.write_sizes(u.marg)})"
        pairs = write_tuple(f"({self.write_sizes(pair)})" for pair in u.marg)
        return f"{source}.{u.op.name.lower()}({pairs})"

    def write_sizes(self, sizes: Any) -> str:
        return ", ".join(self.write_index(s) if isinstance(s, UOp) else str(s) for s in sizes) or "()"

    def write_reduce(self, u: UOp) -> str:
        if u.op is Ops.REDUCE:
            self.file.use("Ops")
            ranges = ", ".join(self.write_index(r) for r in u.src[1:])
            return f"Tensor({self.dot(u.src[0])}.uop.reduce({ranges}, arg=Ops.{u.arg.name}))"
        return self.write_axis_reduce(u, keepdim=True)

    def write_axis_reduce(self, u: UOp, keepdim: bool) -> str:
        op, axes = u.arg
        if op not in REDUCES:
            return self.write_uop(u)
        arguments = [str(axes)]
        if len(axes) == 1:
            arguments = [str(axes[0])]
        if keepdim:
            arguments.append("keepdim=True")
        # without a dtype, Tensor.sum and prod compute small dtypes in larger ones
        if op is Ops.MUL or (op is Ops.ADD and sum_acc_dtype(u.dtype) != u.dtype):
            arguments.append(f"dtype={u.dtype!r}")
        return f"{self.dot(u.src[0])}.{REDUCES[op]}({', '.join(arguments)})"

    def write_alu(self, u: UOp) -> tuple[str, bool]:
        if is_operator(u):
            return self.write_operator(u), True
        if u.op in FLOAT_UNARY and dtypes.is_float(u.dtype) and u.dtype == u.src[0].dtype:
            return f"{self.dot(u.src[0])}.{FLOAT_UNARY[u.op]}()", False
        first, *rest = u.src
        self.file.use("Ops")
        arguments = [f"Ops.{u.op.name}", *(self.texts[s][0] for s in rest)]
        return f"{self.dot(first)}.alu({', '.join(arguments)})", False

    def write_operator(self, u: UOp) -> str:
        scalar = find_scalar(u)
        texts = [self.write_value(s.base) if i == scalar else self.dot(s) for i, s in enumerate(u.src)]
        return f"{texts[0]} {OPERATORS[u.op]} {texts[1]}"

    # *** indices

    def write_index(self, u: UOp) -> str:
        """Returns the text of an index expression: numbers, RANGEs, variables, and operators on them."""
        if u.op is Ops.CONST:
            return str(u.arg)
        if u in self.texts:
            return self.texts[u][0]
        if u.op is Ops.BIND and u.src[0].op is Ops.DEFINE_VAR:
            name, low, high = u.src[0].arg
            self.file.use("UOp")
            bound = self.file.assign("n", f"UOp.variable({name!r}, {low}, {high}).bind({u.src[1].arg})")
            self.texts[u] = (bound, False)
            return bound
        if u.op in INDEX_OPERATORS:
            left, right = (self.write_index(s) for s in u.src)
            return f"({left} {INDEX_OPERATORS[u.op]} {right})"
        raise WriteError(f"an index has {u.op.name} in it")
