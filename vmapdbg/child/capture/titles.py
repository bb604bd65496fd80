"""Names kernels by what they compute: `matmul 64x64x256 + gelu`. Knows only the model, not tinygrad."""

import math
import re
from collections.abc import Iterable
from dataclasses import replace

from vmapdbg.model.capture import Kernel, Node, Schedule
from vmapdbg.model.ops import COMPUTES_NOTHING, SAME_VALUE, WRITES
from vmapdbg.model.schedule_index import ScheduleIndex, index_of

_MOST_OTHERS = 2  # how many methods a title names behind the main one
_NOTHING = COMPUTES_NOTHING | SAME_VALUE | WRITES
_CUSTOM = frozenset(("CALL", "KERNEL", "CUSTOM_KERNEL", "CUSTOM_FUNCTION"))
_SEE_THROUGH = SAME_VALUE | {"CAST"}
_CONTRACTIONS = frozenset(("matmul", "dot", "linear", "einsum"))
_REDUCES = {"ADD": "sum", "MAX": "max", "MUL": "prod"}
_OPERATORS = frozenset(("add", "and", "floordiv", "matmul", "mod", "mul", "or", "pow", "sub", "truediv", "xor"))
_NAMES = {"__truediv__": "div", "__rtruediv__": "div", "__getitem__": "index"}


def add_titles(schedule: Schedule) -> Schedule:
    """Returns the schedule with the `title`, the `main` node and the `phase` of each kernel."""
    index = index_of(schedule)
    return replace(schedule, kernels=tuple(_add_title(kernel, index) for kernel in schedule.kernels))


def _add_title(kernel: Kernel, index: ScheduleIndex) -> Kernel:
    nodes = [node for node in map(index.node, kernel.nodes) if node is not None]
    computed = [node for node in nodes if node.op not in _NOTHING]
    # a reduce of more elements than the kernel has ops is not executed: tinygrad replaces it by a formula or an index
    executed = kernel.executed_ops / max(kernel.launches, 1)
    sizes = {node.id: size for node in computed if (size := index.count_reduced(node)) and size <= executed}
    if sizes:
        main = index.nodes[max(sizes, key=sizes.__getitem__)]
        title = _name_reduce(main, index)
    elif nodes:
        main = (computed or nodes)[-1]
        title = f"{_name_method(main) or main.op.lower()} {_join_dims(main.shape)}"
    else:
        return kernel
    if not computed:
        title = f"copy {_join_dims(main.shape)}"
    elif main.op in _CUSTOM:
        title = f"custom kernel {kernel.name}"
    first = _name_method(main)
    others = dict.fromkeys(name for node in reversed(computed) if (name := _name_method(node)) and name != first)
    named = list(others)[:_MOST_OTHERS]
    if len(others) > _MOST_OTHERS:
        named.append(f"{len(others) - _MOST_OTHERS} more")
    return replace(kernel, title=" + ".join([title, *named]), main=main.id, phase=main.phase)


def _name_reduce(node: Node, index: ScheduleIndex) -> str:
    name = _name_method(node) or node.op.lower()
    kind = _REDUCES.get(node.arg.partition(" ")[0], "reduce")
    contracted = _find_contraction(node, index)
    shape = index.nodes[node.src[0]].shape
    if contracted:
        kind, shape = "matmul", contracted
        if name in _CONTRACTIONS or name == "sum":
            name = kind
    if "conv" in name:
        return f"{name} {_join_dims(node.shape)}"  # the elements of the output, and what is added up for each
    if name != kind:
        name = f"{name} {kind}"
    return f"{name} {_join_dims(shape)}"


def _find_contraction(node: Node, index: ScheduleIndex) -> tuple[int | str, ...]:
    """Returns the batch axes and M, N and K of a sum of products, each M*K x K*N; nothing for any other reduce."""
    axes, product = _find_integers(node), index.find_under(node.src[0], _SEE_THROUGH)
    if product.op == "PERMUTE":
        order = _find_integers(product)  # from 0.14 on the reduced axes are the first
        axes, product = [order[axis] for axis in axes], index.find_under(product.src[0], _SEE_THROUGH)
    if not node.arg.startswith("ADD") or product.op != "MUL" or len(product.src) != 2 or product.shape is None:
        return ()
    left, right = (_find_varying(source, product.shape, index) for source in product.src)
    if left is None or right is None:
        return ()
    groups: dict[str, list[int]] = {"batch": [], "m": [], "n": [], "k": []}
    for axis, size in enumerate(product.shape):
        if not isinstance(size, int):
            return ()
        kind = "n" if axis in right else "m"
        if axis in left and axis in right:
            kind = "k" if axis in axes else "batch"
        if size != 1:
            groups[kind].append(size)
    if not (groups["m"] and groups["n"] and groups["k"]):
        return ()
    batch = math.prod(groups["batch"])
    return (*([batch] * (batch > 1)), *(math.prod(groups[kind]) for kind in "mnk"))


def _find_varying(node_id: int, shape: tuple[int | str, ...], index: ScheduleIndex) -> set[int] | None:
    """Returns the axes of `shape` along which an operand varies: it is broadcast along the others. None if unknown."""
    node = index.find_under(node_id, _SEE_THROUGH)
    if node.op == "EXPAND":
        node = index.nodes[node.src[0]]
    if node.shape is None or len(node.shape) > len(shape) or node.op == "CONST":
        return None
    own = (1,) * (len(shape) - len(node.shape)) + node.shape
    return {axis for axis, size in enumerate(own) if size != 1}


def _find_integers(node: Node) -> list[int]:
    return list(map(int, re.findall(r"\d+", node.arg)))


def _name_method(node: Node) -> str:
    """Returns the method of Tensor that makes a node, operators by their names: `add` for `__radd__`."""
    method = node.method or ""
    if method in _NAMES or not method.startswith("__"):
        return _NAMES.get(method, method)
    name = method.strip("_")
    reflected = name[1:] if name[0] in "ri" else ""
    return reflected if reflected in _OPERATORS else name


def _join_dims(shape: Iterable[int | str] | None) -> str:
    return "x".join(str(size) for size in shape or () if size != 1) or "scalar"
