"""What stands for one node of the tensor graph, from the pass on that gives it ranges. Runs in the child."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from vmapdbg.child.evidence.packing import CannotPack
from vmapdbg.child.passes.mixed_packer import STAGES, MixedPacker, find_base, find_buffer

UOp = Any
Replaced = Mapping[UOp, UOp]


@dataclass(frozen=True)
class Form:
    """A UOp `u` that stands for a node: with its axes where `at` is None; else its `value` as it is at indices, `at`, a
    `buffer` of that, closed over the ranges `closed`, or a `reader` of the buffer, at the indices `read`. `shape` is
    that of the buffer. `before` is what `u` was made from by the pass. `scopes` are the ranges of the scopes that the
    node is in, and what became of them."""

    kind: Literal["value", "buffer", "reader"]
    u: UOp
    before: UOp
    at: tuple[UOp, ...] | None = None
    closed: tuple[UOp, ...] = ()
    shape: tuple[int, ...] = ()
    read: tuple[UOp, ...] = ()
    scopes: tuple[tuple[UOp, UOp], ...] = ()

    def add_right(self, packer: MixedPacker, right: int) -> int:
        """Adds what it should be, where `right` is what the node should be. Raises CannotPack."""
        if self.at is None:
            return right
        slot = self._rename_scopes(packer, packer.add_indexed(right, self.at))
        if self.kind == "value":
            return slot
        slot = packer.add_closed(slot, self.closed, self.shape)
        if self.kind == "reader":
            slot = packer.add_indexed(slot, self.read)
        return slot

    def _rename_scopes(self, packer: MixedPacker, slot: int) -> int:
        changed = [(old, new) for old, new in self.scopes if old is not new]
        if not changed:
            return slot
        olds, news = zip(*changed, strict=True)
        sizes = tuple(packer.graph.ranges[packer.name_range(r)] for r in olds)
        return packer.add_indexed(packer.add_closed(slot, olds, sizes), news)

    def move(self, made: Replaced, u: UOp) -> Form:
        """Returns the form that `u` is after a rewrite, at what became of its ranges."""
        at, closed, read = (_move_all(indices, made) for indices in (self.at or (), self.closed, self.read))
        at = None if self.at is None else at
        scopes = tuple((old, _move(new, made)) for old, new in self.scopes)
        return replace(self, u=u, before=self.u, at=at, closed=closed, read=read, scopes=scopes)


def make_value(x: UOp, u: UOp, ranges: Any, scopes: Iterable[UOp] = ()) -> Form:
    """Returns what stands for the node `x` after the pass that gives it `ranges`, in tinygrad's form. `scopes` are the
    ranges of scopes that its value depends on: the overlay binds them to the indices at which the scope is read."""
    bound: dict[UOp, UOp] = dict(getattr(ranges, "ambient", {}))
    if x.op.name == "VMAPIN":
        bound |= {r: index for r, index in zip(x.src[1:], ranges[0], strict=True) if r.op.name == "RANGE"}
    known = {**{r: r for r in scopes}, **{r: index for r, index in bound.items() if r in x.ranges}}
    return Form("value", u, x, tuple(ranges[1]), scopes=tuple(known.items()))


def _move_all(indices: Sequence[UOp], made: Replaced) -> tuple[UOp, ...]:
    return tuple(_move(index, made) for index in indices)


def _move(index: UOp, made: Replaced) -> UOp:
    """Returns what became of an index. One that no UOp of the graph was: of its ranges."""
    if index in made and made[index].op.name in {"RANGE", "CONST"}:
        return made[index]
    ranges = {r: made[r] for r in index.toposort() if r.op.name == "RANGE" and made.get(r, r) is not r}
    return index.substitute(ranges) if ranges else index


def follow_forms(forms: Sequence[Form], made: Replaced, left: Container[UOp]) -> list[Form]:
    """Returns those forms that are still there after a pass, which has made others of UOps; `left` are its UOps."""
    found: dict[tuple[str, UOp], Form] = {}
    for form in forms:
        u = made.get(form.u, form.u)
        if form.kind == "buffer":
            # what reads it may take views of it in
            u = find_base(u)
        if u in left:
            found.setdefault((form.kind, u), form.move(made, u))
    return list(found.values())


def find_buffers(forms: Sequence[Form], left: Iterable[UOp], packer: MixedPacker) -> list[Form]:
    """Returns the forms with the buffers of their values, and with what reads these, that a pass has made."""
    values = {form.u: form for form in forms if form.kind == "value" and form.at is not None}
    known = {form.u for form in forms}
    graph = list(left)
    buffers = [made for u in graph if u not in known for made in _find_buffer(u, values, packer)]
    stages = {form.u: form for form in (*forms, *buffers) if form.kind == "buffer" and form.u.op.name in STAGES}
    readers = []
    for u in graph:
        stage = stages.get(u.src[0]) if u.op.name == "INDEX" else None
        if stage is not None and u not in known and len(u.src) == 1 + len(stage.closed):
            readers.append(replace(stage, kind="reader", u=u, read=tuple(u.src[1:])))
    return [*forms, *buffers, *readers]


def _find_buffer(u: UOp, values: Mapping[UOp, Form], packer: MixedPacker) -> Iterator[Form]:
    if u.op.name in STAGES and u.src[0] in values:
        form = values[u.src[0]]
        try:
            shape = packer.graph.nodes[packer.pack(u)].shape
        except CannotPack:
            return
        yield replace(form, kind="buffer", u=u, closed=tuple(u.src[1:]), shape=shape)


def find_memory(form: Form) -> UOp | None:
    """Returns the buffer that a form is in as a whole, None for one that is in none."""
    base = find_base(form.u)
    if form.kind != "buffer" or base.op.name != "AFTER":
        return None
    return find_buffer(base)
