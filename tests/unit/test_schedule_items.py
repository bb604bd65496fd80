"""The schedules of commits before 0.12.0: items with Buffers, which have no UOps of their arguments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from vmapdbg.child.listen.releases import list_launches


class Node:
    """A UOp with what a schedule looks at; compared by identity."""

    def __init__(self, op: str, src: tuple[Node, ...] = (), arg: Any = None, buffer: Any = None) -> None:
        self.op, self.src, self.arg, self.buffer = SimpleNamespace(name=op), src, arg, buffer

    @property
    def buf_uop(self) -> Node:
        return self

    def toposort(self) -> list[Node]:
        return [*(u for source in self.src for u in source.toposort()), self]


def make_item(ast: Node, *bufs: object, **fixedvars: int) -> Any:
    return SimpleNamespace(ast=ast, bufs=bufs, fixedvars=fixedvars)


def test_an_item_gets_the_arguments_of_its_kernel() -> None:
    """Two layers are one AST; a kernel on two devices has an item for each of them."""
    ast, first, second = Node("SINK"), object(), object()
    on_two = SimpleNamespace(bufs=[object(), object()])
    layers = [Node("BUFFER", buffer=memory) for memory in (first, second, on_two)]
    step = Node("BIND")
    kernels = [Node("KERNEL", (layer, step), SimpleNamespace(ast=ast)) for layer in layers]
    items = [make_item(ast, second, i=1), make_item(ast, first, i=2)]
    items += [make_item(ast, memory, _device_num=number) for number, memory in enumerate(on_two.bufs)]
    for created in (items, (items, {"n": 3})):
        launches = list(list_launches(Node("SINK", tuple(kernels)), created))
        assert [launch.buffers for launch in launches] == [(layers[n], step) for n in (1, 0, 2)]
        assert [launch.variables for launch in launches] == [{"i": 1}, {"i": 2}, {}]
        assert all(launch.is_compute for launch in launches)
