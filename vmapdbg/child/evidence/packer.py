"""Packs tensor graphs in the form that `vmapdbg.reference` evaluates, in the child. This and `loop_packer` hide what
releases differ in: names of ops, the axes of a reduce, constants without a dtype, writes and bound variables."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vmapdbg.child.listen.releases import DEVICE_NUMBER, SHARDED
from vmapdbg.child.listen.user_lines import find_noted
from vmapdbg.child.memory import name_dtype
from vmapdbg.model.ops import ARITHMETIC, RESHAPING, SAME_VALUE, STORES
from vmapdbg.reference.graph import DEVICES, WRITES, OpGraph, OpNode
from vmapdbg.values.tolerance import ITEMSIZE, is_float

UOp = Any  # this module is imported before the overlay is installed, and must not import tinygrad


class CannotPack(Exception):
    """The reference does not know something in a graph; the message is a sentence that says what."""


UNEXPECTED = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What reading a graph of an unexpected form raises: the user's program must not fail because of it."""

SAME = SAME_VALUE - {"COPY"}
# ops that the reference has, too, without an `arg`
_PLAIN = {op: op.lower() for op in ("CAST", "BITCAST", "RESHAPE", "EXPAND")}
_PLAIN |= {**dict.fromkeys(SAME, "same"), "CONTIGUOUS": "copy"}
_MATCHED = {"STACK": "stack", **{op: function.name for op, function in ARITHMETIC.items()}}  # operands of one dtype
# numbers with the dtype of the other operand; indices, which no kernel computes in a smaller dtype
DTYPES = {"index": "long", "weakint": "long", "weakfloat": "double", "weakbool": "bool"}
_INDICES = {"index", "weakint"}
_WEAK = {"weakfloat", *_INDICES}
_REDUCES = {"ADD": "add", "MUL": "mul", "MAX": "max"}
_FIRST = SAME_VALUE | RESHAPING | SHARDED | {"BITCAST", "CAST", "BIND", "VMAPIN", "VMAPOUT"}
_FIRST |= {"REDUCE", "REDUCE_AXIS", "ALLREDUCE"}  # ops that are computed from their first source only
_REFUSED = {
    **dict.fromkeys(("KERNEL", "CALL", "CUSTOM_KERNEL"), "a custom kernel is in its graph"),
    "CUSTOM_FUNCTION": "a custom function is in its graph",
    "BUFFER_VIEW": "it looks at a part of a DISK",
}

Contents = Callable[[UOp], tuple[str, ...] | None]
"""BUFFER -> the names of its contents, one for each of its devices; None if they are not known."""


class Sizes:
    """Computes sizes and shifts that are UOps. `variables` has values, by name, that the graph lacks, or new ones."""

    def __init__(self, variables: Mapping[str, int]):
        self.variables = dict(variables)
        self._known: dict[UOp, int | None] = {}

    def need(self, size: int | UOp) -> int:
        """Returns a size. Raises CannotPack."""
        found = self.find(size)
        if found is None:
            raise CannotPack("its shape depends on a variable without a value")
        return found

    def find(self, size: int | UOp) -> int | None:
        """Returns a size as a number, None if it is not known."""
        if isinstance(size, int):
            return int(size)
        if size not in self._known:
            self._known[size] = self._compute(size)
        return self._known[size]

    def _compute(self, u: UOp) -> int | None:
        op, bound = u.op.name, _find_binding(u)
        if op == "CONST":
            return int(u.arg) if isinstance(u.arg, int) else None
        if bound is not None:
            # 0.12 leaves the value out when it looks for a schedule in its cache; a replay has other values
            name, value = bound
            return self.variables[name] if name in self.variables else self.find(value)
        if op == "DEFINE_VAR":
            return self.variables.get(u.arg[0])
        if getattr(u, "is_variable", False) or op == "PARAM":
            name = getattr(u.arg, "name", None)
            if not name and u.src and u.src[-1].op.name == "NOOP":
                name = u.src[-1].arg  # in 0.13
            return self.variables.get(name or "")
        if op in {"CAST", "VECTORIZE", "NOOP"} and len(u.src) == 1:
            return self.find(u.src[0])
        parts: Any = list(map(self.find, u.src))
        if op not in ARITHMETIC or None in parts:
            return None
        compute = ARITHMETIC[op].on_integers
        return None if compute is None else int(compute(*parts))


def find_variables(nodes: Iterable[UOp]) -> dict[str, int]:
    """Returns the variables that a graph gives values to, by their names. `nodes` are its nodes."""
    bound = filter(None, map(_find_binding, nodes))
    return {name: int(value.arg) for name, value in bound if value.op.name == "CONST"}


def _find_binding(u: UOp) -> tuple[str, UOp] | None:
    """Returns the name of the variable that a UOp gives a value to, and the value; None for any other UOp."""
    if u.op.name == "BIND":
        variable = u.src[0].arg
        return getattr(variable, "name", None) or variable[0], u.src[-1]
    return (u.src[0].arg.name, u.src[1].src[1]) if getattr(u, "is_bound_var", False) else None


def find_argument_sizes(scheduled: UOp) -> dict[str, int]:
    """Returns the variables of a scheduled CALL: from 0.13 on the pass names one by its place among the arguments."""
    if scheduled.op.name != "CALL":
        return {}
    places = {f"p{place}": Sizes({}).find(u) for place, u in enumerate(scheduled.src[1:])}
    return {name: number for name, number in places.items() if number is not None}


class Packer:
    """Packs tensor graphs. `contents` names the contents of a BUFFER; `variables` has the numbers of variables by their
    names, if the graph does not bind them, or if they have other values now. It adds to `graph`, in which `held`
    returns the slot of what a BUFFER holds, None if that are its contents. Ops in no table above have a `_make_OP`."""

    def __init__(
        self,
        contents: Contents,
        variables: Mapping[str, int] = {},
        graph: OpGraph | None = None,
        held: Callable[[UOp], int | None] = lambda u: None,
    ):
        self.graph = graph or OpGraph()
        self.contents, self.held = contents, held
        self.sizes = Sizes(variables)
        # what comes after these nodes are no writes of the graph: it is what its Tensors mean
        self.end: int | None = None
        self.slots: dict[UOp, int] = {}  # the position of each UOp in the graph
        self._ranges: dict[UOp, int] = {}

    def pack(self, root: UOp) -> int:
        """Adds a UOp with all that it is computed from, and returns its position. Raises CannotPack."""
        stack = [root]
        try:
            while stack:
                u = stack[-1]
                if u in self.slots:
                    stack.pop()
                    continue
                sources = self._find_sources(u)
                missing = [s for s in sources if s not in self.slots]
                stack += missing
                if not missing:
                    slot = self.slots[u] = self._make(u, tuple(self.slots[s] for s in sources))
                    if (origin := find_noted(u)) is not None:
                        self.graph.origins.setdefault(slot, (origin.line, origin.method))
        except UNEXPECTED as error:
            raise CannotPack(f"its graph cannot be read: {type(error).__name__}: {error}") from error
        return self.slots[root]

    @property
    def buffers(self) -> dict[UOp, int]:
        """The position of each BUFFER in the graph."""
        return {u: slot for u, slot in self.slots.items() if u.op.name == "BUFFER"}

    # *** writes

    def add_assigned(self) -> dict[UOp, int]:
        """Adds what BUFFERs hold after the writes of the graph, and returns BUFFER -> slot, without BUFFERs that
        writes change which do not follow each other: in 0.12 the second ASSIGN may go to memory of its own."""
        buffers = {slot: u for u, slot in self.buffers.items()}
        writes: dict[int, list[int]] = {}  # memory -> its writes
        # a target that is no view of a BUFFER, as a CONTIGUOUS: tinygrad may skip it and write to BUFFERs below
        others: list[int] = []
        for slot in sorted(set(self.slots.values())):
            node = self.graph.nodes[slot]
            if self.end is not None and slot >= self.end:
                break
            if node.op in WRITES:
                base = self.graph.find_view(node.src[0]).base
                if all(part in buffers for part in self._list_parts(base)):
                    writes.setdefault(base, []).append(slot)
                else:
                    others.append(node.src[0])
        below = set(self._reach_memory(others))
        found: dict[UOp, int] = {}
        for base, slots in writes.items():
            parts = self._list_parts(base)
            if below.isdisjoint(parts) and (len(slots) == 1 or self._is_chain(slots)):
                after = self.add_after(base, slots)
                for number, part in enumerate(parts):
                    u = buffers[part]
                    found[u] = after if part == base else self._add("shard", u, (after,), number)
        return found

    def _list_parts(self, memory: int) -> tuple[int, ...]:
        """Returns the memory itself, or that of each device."""
        node = self.graph.nodes[memory]
        return node.src if node.op == "devices" else (memory,)

    def _is_chain(self, writes: Sequence[int]) -> bool:
        """Whether each of some writes, in the order of the graph, is a STORE to what the writes before it leave."""
        if any(self.graph.nodes[slot].op != "store" for slot in writes):
            return False
        return all(one in self.graph.find_writes(following) for one, following in itertools.pairwise(writes))

    def find_touched(self) -> set[UOp]:
        """Returns the BUFFERs below the targets of writes, also if the way to them is not followed."""
        targets = [node.src[0] for node in self.graph.nodes[: self.end] if node.op in WRITES]
        reached = set(self._reach_memory(targets))
        return {u for u, slot in self.buffers.items() if slot in reached}

    def _reach_memory(self, targets: Iterable[int]) -> list[int]:
        """Returns what may have the memory of targets of writes: not what an earlier write to them has read."""
        nodes = self.graph.nodes
        later = WRITES | {"after"}
        return self.graph.reach(
            targets, sources_of=lambda slot: nodes[slot].src[: 1 if nodes[slot].op in later else None]
        )

    def add_after(self, memory: int, writes: Sequence[int]) -> int:
        """Adds what memory holds after writes, and returns its position."""
        node = self.graph.nodes[memory]
        return self.graph.add(OpNode("after", node.dtype, node.shape, (memory, *writes)))

    def show_memory(self, slot: int) -> int:
        """Returns the position of what memory holds, given a view of all of it: of a sharded tensor, the shards."""
        view = self.graph.find_view(slot)
        is_sharded = any(self.graph.nodes[step].op == "shards" for step in view.path)
        return self.add_after(view.base, [slot]) if is_sharded else slot

    # *** sources of a UOp

    def _find_sources(self, u: UOp) -> list[UOp]:
        op = u.op.name
        if op in _REFUSED:
            raise CannotPack(_REFUSED[op])
        if op in {"BUFFER", "CONST", "RANGE", "DEFINE_VAR", "PARAM"} or self._is_number(u):
            return []
        if op in {"PAD", "SHRINK"}:
            # where it begins on an axis may depend on a step
            return [u.src[0], *(begin for begin, _ in u.marg if self.sizes.find(begin) is None)]
        if op in _FIRST:
            return list(u.src[:1])
        return list(u.src[:2]) if op in STORES else list(u.src)

    def _is_number(self, u: UOp) -> bool:
        """Whether a UOp is a number that is known now: a variable with a value, or an expression of such variables."""
        is_index = name_dtype(u.dtype) in _INDICES or u.op.name in {"BIND", "DEFINE_VAR"}
        return is_index and self.sizes.find(u) is not None

    # *** one node

    def _make(self, u: UOp, src: tuple[int, ...]) -> int:
        """Adds a node for a UOp; `src` are the slots of its sources."""
        op = u.op.name
        if not src and self._is_number(u):
            return self._add("const", u, (), self.sizes.find(u))
        if op in _MATCHED:
            return self._add(_MATCHED[op], u, self._match_dtypes(u, src))
        if op in _PLAIN:
            return self._add(_PLAIN[op], u, src)
        if op in _WITH_ARG:
            name, find_arg = _WITH_ARG[op]
            return self._add(name, u, src, find_arg(self, u))
        method = getattr(self, f"_make_{op.lower()}", None)
        if method is None:
            raise CannotPack(f"the reference does not know {op}")
        return method(u, src)

    def _add(self, op: str, u: UOp, src: tuple[int, ...], arg: Any = None) -> int:
        return self.graph.add(OpNode(op, self._name_dtype(u), self._find_shape(u), src, arg))

    def _name_dtype(self, u: UOp) -> str:
        name = _name_scalar(u)
        name = DTYPES.get(name, name)
        if name not in ITEMSIZE:
            raise CannotPack(f"the reference does not know the dtype {name}")
        return name

    def _find_shape(self, u: UOp) -> tuple[int, ...]:
        return tuple(map(self.sizes.need, u._shape or ()))

    def _match_dtypes(self, u: UOp, src: tuple[int, ...]) -> tuple[int, ...]:
        """Casts numbers without a dtype to the other operand's, or to a float result's (0.14: the factor of a mean)."""
        typed = [s for s in u.src if _name_scalar(s) not in {*_WEAK, "bool"}]
        candidates = [*typed, *(s for s in (u, *u.src) if is_float(self._name_dtype(s)))]
        if len(typed) == len(u.src) or not candidates:
            return src
        wanted = self._name_dtype(candidates[0])
        is_weak = [_name_scalar(s) in _WEAK for s in u.src]
        return tuple(self._cast(s, wanted) if weak else s for s, weak in zip(src, is_weak, strict=True))

    def _cast(self, slot: int, dtype: str) -> int:
        node = self.graph.nodes[slot]
        return slot if node.dtype == dtype else self.graph.add(OpNode("cast", dtype, node.shape, (slot,)))

    def _reshape(self, slot: int, shape: tuple[int, ...]) -> int:
        node = self.graph.nodes[slot]
        return slot if node.shape == shape else self.graph.add(OpNode("reshape", node.dtype, shape, (slot,)))

    def _make_const(self, u: UOp, src: tuple[int, ...]) -> int:
        dtype = self._name_dtype(u)
        if str(u.arg) == "Invalid":  # it converts to bool, but not to a number
            raise CannotPack("a value that is not defined (Invalid) is in its graph")
        kind = {"bool": bool}.get(dtype, float if is_float(dtype) else int)
        try:
            number = kind(u.arg)
        except (TypeError, ValueError):
            raise CannotPack(f"the reference does not know the constant {u.arg}") from None
        return self._add("const", u, (), number)

    def _make_buffer(self, u: UOp, src: tuple[int, ...]) -> int:
        held = self.held(u)
        if held is not None:
            shape = self._find_shape(u)
            # memory of its own, also for a view of what was computed
            return self.graph.add(OpNode("copy", self._name_dtype(u), shape, (self._reshape(held, shape),)))
        names = self.contents(u)
        slot = self._add("buffer", u, ())
        if names is not None:
            self.graph.inputs[slot] = names
        if isinstance(u.device, tuple):
            self.graph.ranges[DEVICES] = len(u.device)
        return slot

    def _make_shrink(self, u: UOp, src: tuple[int, ...]) -> int:
        found, shape = [self.sizes.find(begin) for begin, _ in u.marg], self._find_shape(u)
        begins = [begin for begin in found if begin is not None]
        if len(begins) < len(found):
            return self._add("shrink", u, src, tuple(found))
        source = self.graph.nodes[src[0]]
        # a slice of a slice with a symbolic size shows what is behind it, if its variable has another value by now
        while source.op == "shrink" and None not in source.arg:
            if all(first + size <= have for first, size, have in zip(begins, shape, source.shape, strict=True)):
                break
            begins = [first + outer for first, outer in zip(begins, source.arg, strict=True)]
            src, source = source.src, self.graph.nodes[source.src[0]]
        return self._add("shrink", u, src, tuple(begins))

    _make_param = _make_buffer  # the pass has PARAMs instead of the snippet's BUFFERs from 0.13 on

    def _make_vectorize(self, u: UOp, src: tuple[int, ...]) -> int:
        """A shift of one axis, which depends on a step."""
        if len(src) != 1:
            raise CannotPack("the reference does not know VECTORIZE")
        return src[0]

    def _make_copy(self, u: UOp, src: tuple[int, ...]) -> int:
        source = self.graph.nodes[src[0]]
        is_spread = isinstance(u.src[0].device, tuple) and not isinstance(u.device, tuple)
        if is_spread and source.op != "shards" and DEVICES in self.graph.ranges:
            src = (self._add("shard", u, src, 0),)  # a write to the copy is none to the shard
        return self._add("copy", u, src)

    def _make_assign(self, u: UOp, src: tuple[int, ...]) -> int:
        return self._add("assign", u, (src[0], self._cast(src[1], self._name_dtype(u))))

    def _make_store(self, u: UOp, src: tuple[int, ...]) -> int:
        target = self.graph.nodes[src[0]]
        return self.graph.add(OpNode("store", target.dtype, target.shape, (src[0], self._cast(src[1], target.dtype))))

    def _make_after(self, u: UOp, src: tuple[int, ...]) -> int:
        if {self.graph.nodes[s].op for s in src[1:]} - {"store", "assign", "after"}:
            raise CannotPack("a custom kernel is in its graph")
        return self._add("after", u, src)

    # *** reduces, steps, scopes

    def _make_reduce(self, u: UOp, src: tuple[int, ...]) -> int:
        """Adds a reduce over axes and step ranges. Its op is the whole `arg`, or the first item."""
        op, axes = u.arg, ()
        if isinstance(u.arg, tuple):
            op, axes = u.arg[:2]
        ended = [r for r in u.src[1:] if r.op.name != "CONST"]
        if unknown := {r.op.name for r in ended} - {"RANGE"}:
            raise CannotPack(f"the reference does not know a reduce over {unknown.pop()}")
        if isinstance(axes, int):
            axes = range(axes)  # 0.14 has the number of axes, which come first
        keep = len(self._find_shape(u)) == len(self.graph.nodes[src[0]].shape)
        return self._add("reduce", u, src, (_REDUCES[op.name], tuple(axes), keep, tuple(map(self.name_range, ended))))

    _make_reduce_axis = _make_reduce

    def _make_allreduce(self, u: UOp, src: tuple[int, ...]) -> int:
        """Adds a reduce over the devices, of the shards of a sharded tensor: each device's result is joined again."""
        source = self.graph.nodes[src[0]]
        is_sharded = source.op == "shards"
        if not is_sharded and any(x.op.name in SHARDED for x in u.src[0].toposort()):
            raise CannotPack("it all-reduces what is computed from a sharded tensor")
        (part,) = source.src if is_sharded else src
        op = u.arg[0] if isinstance(u.arg, tuple) else u.arg
        arg = (_REDUCES[op.name], (), True, (DEVICES,))
        reduced = self.graph.add(replace(self.graph.nodes[part], op="reduce", src=(part,), arg=arg))
        return self.graph.add(replace(source, src=(reduced,))) if is_sharded else reduced

    def _make_range(self, u: UOp, src: tuple[int, ...]) -> int:
        name = self.name_range(u)
        return self._add("step", u, (), (name, self.graph.ranges[name]))

    def name_axis(self, r: UOp) -> int | None:
        """Returns the id of a RANGE; None for another op, which is an axis of size 1."""
        return None if r.op.name != "RANGE" else self.name_range(r)

    def name_range(self, r: UOp) -> int:
        """Returns the id of the step range that a RANGE is: the RANGE's id, unless another RANGE has taken it."""
        if is_device(r):
            self._ranges[r], self.graph.ranges[DEVICES] = DEVICES, self.sizes.need(r.src[0])
        if r not in self._ranges:
            name = r.arg[0]
            while name in self.graph.ranges:
                name += 1_000_000
            size = self.sizes.find(r.src[0])
            if size is None:
                raise CannotPack("the size of a scope is not a number")
            self._ranges[r], self.graph.ranges[name] = name, size
        return self._ranges[r]

    def find_range(self, name: int) -> UOp | None:
        """Returns the RANGE that a step range is."""
        return next((r for r, known in self._ranges.items() if known == name), None)

    # *** devices

    def _make_multi(self, u: UOp, src: tuple[int, ...]) -> int:
        self.graph.ranges[DEVICES] = len(u.device)
        return self._add("shards", u, src, u.arg)

    def _make_unshard(self, u: UOp, src: tuple[int, ...]) -> int:
        """0.14's name for MULTI: it may be sharded along several axes, and over loops."""
        if len(u.arg) != 1 or not is_device(u.src[1]):
            raise CannotPack("it is sharded over more than the devices")
        self.name_range(u.src[1])
        return self._add("shards", u, src, u.arg[0])

    def _make_mstack(self, u: UOp, src: tuple[int, ...]) -> int:
        self.graph.ranges[DEVICES] = len(src)
        return self._add("devices", u, src)

    def _make_define_var(self, u: UOp, src: tuple[int, ...]) -> int:
        name, _, last = u.arg
        if name != DEVICE_NUMBER:
            raise CannotPack(f"the variable {name} has no value")
        self.graph.ranges[DEVICES] = last + 1
        return self._add("step", u, (), (DEVICES, last + 1))


# ops that the reference has, too, with an `arg`
_WITH_ARG: dict[str, tuple[str, Callable[[Packer, UOp], Any]]] = {
    "PERMUTE": ("permute", lambda packer, u: tuple(u.marg)),
    "FLIP": ("flip", lambda packer, u: tuple(axis for axis, is_flipped in enumerate(u.marg) if is_flipped)),
    "PAD": ("pad", lambda packer, u: tuple(packer.sizes.find(begin) for begin, _ in u.marg)),
    "VMAPIN": ("vmapin", lambda packer, u: tuple(map(packer.name_axis, u.src[1:]))),
    "VMAPOUT": ("vmapout", lambda packer, u: tuple(map(packer.name_axis, u.src[1:]))),
    "MSELECT": ("shard", lambda packer, u: u.arg),
}


def is_device(r: UOp) -> bool:
    """Whether a UOp is the RANGE over the devices of a sharded tensor, which 0.14 introduced."""
    return r.op.name == "RANGE" and r.arg[-1].name == "DEVICE"


def _name_scalar(u: UOp) -> str:
    scalar = getattr(u.dtype, "scalar", lambda: u.dtype)  # 0.14 has no vectors
    return name_dtype(scalar())
