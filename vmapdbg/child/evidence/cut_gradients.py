"""Gradients that tinygrad 0.12 cuts off at an ASSIGN: it does not go through one, so that the gradient of what is
assigned is zero, and so is that of what is cloned. Runs in the child.

The graph of such a gradient is a zero: what computes it is right, and only the graph of the loss tells."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from vmapdbg.check.result import CutGradient
from vmapdbg.child.listen.user_lines import find_user_line
from vmapdbg.child.memory import name_dtype

UOp = Any


class GradientWatcher:
    """Knows the gradients that are cut off and that no schedule was told of yet."""

    def __init__(self) -> None:
        self._cut: list[CutGradient] = []

    def declare(self, changes: Any, tensor_module: ModuleType) -> None:
        """Has `Tensor.gradient` wrapped where a write is an ASSIGN: in 0.12."""
        from tinygrad.uop import Ops

        if hasattr(Ops, "ASSIGN"):
            names = ("self", "targets", "gradient", "materialize_grads")
            changes.wrap(tensor_module.Tensor, "gradient", self.on_gradient, *names)

    def on_gradient(self, compute: Callable[..., Any], loss: Any, /, *targets: Any, **options: Any) -> Any:
        cut = find_cut(loss.uop, [target.uop for target in targets])
        self._cut += [CutGradient(find_user_line(), tuple(map(str, u.shape)), name_dtype(u.dtype)) for u in cut]
        return compute(loss, *targets, **options)

    def take(self) -> list[CutGradient]:
        """Returns those that nobody was told of."""
        cut, self._cut = self._cut, []
        return cut


def find_cut(root: UOp, targets: list[UOp]) -> list[UOp]:
    """Returns the targets that a value depends on by ASSIGNs alone."""
    nodes = root.toposort(lambda u: u.op.name != "DETACH")
    if not any(u.op.name == "ASSIGN" for u in nodes):
        return []
    reached = find_sources(nodes)
    followed = find_sources(root.toposort(lambda u: u.op.name not in {"DETACH", "ASSIGN"}))
    return [u for u in dict.fromkeys(targets) if u is not root and u in reached and u not in followed]


def find_sources(nodes: dict[UOp, None]) -> set[UOp]:
    return {source for u in nodes for source in u.src}
