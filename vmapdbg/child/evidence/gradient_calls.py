"""Calls of tinygrad's autograd, for `check --gradients`: the graph of the loss, and the gradient that tinygrad makes
for each node between it and the targets. Runs in the child."""

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from vmapdbg.child.evidence.evidence import BlobsFull, EvidenceFolder, GradientCall
from vmapdbg.child.evidence.packer import CannotPack, Packer, find_variables
from vmapdbg.child.evidence.realize_call import has_memory
from vmapdbg.child.listen.guard import setting, watching
from vmapdbg.child.listen.tally import Tally
from vmapdbg.child.listen.user_lines import find_user_line
from vmapdbg.reference.graph import OpGraph

UOp = Any


class GradientCalls:
    """Keeps the calls that no schedule has got yet. Of several calls at one line, only the first has a graph."""

    def __init__(self, folder: EvidenceFolder, tally: Tally):
        self.folder, self.tally = folder, tally
        self._is_inside = False  # from 0.13 on, the gradient of a function is a call inside of a call
        self._calls: list[GradientCall] = []
        self._lines: set[str | None] = set()

    def watch(self, tensor_module: ModuleType) -> None:
        """Wraps tinygrad's function for gradients. Raises UnknownShape."""
        owner = tensor_module
        if not hasattr(owner, "compute_gradient"):
            owner = importlib.import_module("tinygrad.mixin.gradient")  # from 0.14 on
        with watching("gradients") as changes:
            changes.wrap(owner, "compute_gradient", self.on_gradient, "root", "root_grad", "targets")

    def on_gradient(self, compute: Callable[..., Any], root: UOp, root_grad: UOp, targets: set[UOp]) -> Any:
        if self._is_inside:
            return compute(root, root_grad, targets)
        with setting(self, "_is_inside", True):
            gradients = compute(root, root_grad, targets)
        line, nodes = find_user_line(), root.toposort()
        asked = [u for u in nodes if u in targets]
        call = GradientCall(line, len(asked), OpGraph())
        self.tally.seen["gradients"] += len(asked)
        if line in self._lines:
            call.refused = "an earlier call at its line was compared"
        else:
            self._lines.add(line)
            try:
                self._pack(call, root, root_grad, asked, gradients)
            except CannotPack as error:
                call.refused = str(error)
            except BlobsFull:
                call.refused = "there was no room"
        self._calls.append(call)
        return gradients

    def _pack(
        self, call: GradientCall, root: UOp, root_grad: UOp, asked: list[UOp], gradients: Mapping[UOp, UOp]
    ) -> None:
        nodes = root.sink(root_grad, *gradients.values()).toposort()
        inputs = {u: self.folder.keep_all(u.buffer) for u in filter(has_memory, nodes)}
        packer = Packer(lambda u: inputs.get(u) or None, find_variables(nodes))
        call.graph = packer.graph
        call.loss, call.upstream = packer.pack(root), packer.pack(root_grad)
        call.targets = tuple(packer.slots[u] for u in asked)
        call.detached = tuple(packer.slots[u] for u in packer.slots if u.op.name == "DETACH")
        call.gradients = {packer.slots[u]: packer.pack(made) for u, made in gradients.items() if u in packer.slots}

    def take(self) -> list[GradientCall]:
        """Returns the calls since the last time."""
        calls, self._calls = self._calls, []
        return calls
