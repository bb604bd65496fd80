"""A call of `Tensor.realize` on a tinygrad that is observed, of any release. Runs in the child."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from vmapdbg.child.capture.view import list_nodes
from vmapdbg.child.evidence.folder import EvidenceFolder
from vmapdbg.child.evidence.graphs import Evidence
from vmapdbg.child.evidence.packer import CannotPack, Packer
from vmapdbg.child.evidence.passed import choose_packable, find_observed, group_observed, number_kernels, pack_buffers
from vmapdbg.child.evidence.realize_call import RealizeCall
from vmapdbg.child.evidence.sizes import Sizes
from vmapdbg.child.failures.known_nodes import KnownNodes
from vmapdbg.child.listen.records import PassRecord
from vmapdbg.child.listen.releases import memory_of
from vmapdbg.install.overlay import is_installed

UOp = Any


class ObservedCall(RealizeCall):
    """Its outputs are read as the graphs that tinygrad made of them."""

    def __init__(self, folder: EvidenceFolder, asked: Sequence[Any]):
        """`asked` are the Tensors that have something to compute."""
        super().__init__(folder, [t.uop for t in asked])
        # from 0.13 on, a Tensor that is held keeps TinyJit from using its memory again; in 0.12.0 its replays use the
        # BUFFERs of the call, so Tensors of our own can hold the outputs, also after the snippet's are gone
        self._held = [type(t)(t.uop, device=t.uop.device) for t in asked] if is_installed() else []
        self._tensors = [weakref.ref(t) for t in self._held or asked]
        # the outputs of a captured call, None if nothing holds the output
        self._views: list[UOp] = []

    def finish(self, passes: Sequence[PassRecord | None]) -> None:
        if self.captured is not None:
            self._find_made()
        super().finish(passes)

    def fail(self, error: BaseException, nodes: KnownNodes, passes: Sequence[PassRecord | None]) -> None:
        super().fail(error, nodes, passes)
        groups, index = self._group_launches(passes), self.launches.failed
        kernel = next((number for number, launches in enumerate(groups or ()) if index in launches), None)
        passed = passes[0] if passes else None
        if passed is None or kernel is None:
            return
        self.evidence.failed_kernel = number_kernels(passed)[kernel]
        node = passed.kernels[kernel].node
        if node is not None:
            self.evidence.failed_node = nodes.find(node)

    def _group_launches(self, passes: Sequence[PassRecord | None]) -> list[tuple[int, ...]] | None:
        """Returns the launches of each kernel of the first pass, None if other kernels ran."""
        if not passes:
            return None
        return group_observed(passes, [step.ast for step in self.launches.steps])

    def _keep_values(self) -> None:
        self.evidence.values = [None] * len(self.roots)
        self.reference.finish([tensor.uop for ref in self._tensors if (tensor := ref()) is not None])

    def _find_made(self) -> None:
        """Notes the BUFFERs that hold a whole root."""
        for root, ref in zip(self.roots, self._tensors, strict=True):
            tensor = ref()
            if tensor is None:
                continue
            u = tensor.uop
            while u.op.name == "RESHAPE":
                u = u.src[0]
            if u.op.name == "BUFFER":
                self.made[u] = root

    def _pack_passed(self, passes: Sequence[PassRecord | None]) -> None:
        passed = passes[0] if passes else None
        if passed is None or self.scheduled is None:
            return
        groups = self._group_launches(passes)
        if groups is None:
            return
        if len(passes) > 1:
            self.is_first = True
        ids = {u: number for number, u in enumerate(list_nodes(passed))}
        found = find_observed(passed, ids, self.launches.written, groups)
        # from 0.13 on the graph of the pass calls a variable by its place among the arguments
        places = {f"p{place}": Sizes({}).find(u) for place, u in enumerate(self.scheduled.src[1:])}
        variables = {name: number for name, number in places.items() if number is not None}
        variables = self.reference.variables | variables
        contents = self._find_contents(passed)
        packer = Packer(contents, variables)
        chosen, self.evidence.passed_refused = choose_packable(found, packer)
        if self.evidence.passed_refused is not None:
            # it has parts of what cannot be packed
            packer = Packer(contents, variables)
        pack_buffers(self.evidence, chosen, self.launches, packer)
        self.evidence.range_names |= {r.arg[0]: r.render(simplify=False) for r in passed.scope_ranges}

    # *** what replays of the call ask, too

    def settle(self, memory: set[UOp] | None) -> None:
        self._views = [None] * len(self._tensors)
        for number, ref in enumerate(self._tensors):
            tensor = ref()
            if tensor is not None and (memory is None or memory_of(tensor.uop) in memory):
                self._views[number] = tensor.uop

    def find_buffers(self) -> list[Any]:
        found: list[Any] = [None] * len(self._views)
        for number, view in enumerate(self._views):
            if view is not None and (u := memory_of(view)).op.name == "BUFFER":
                found[number] = u.buffer
        return found

    def keep_outputs(self, evidence: Evidence, moved: Mapping[int, Any]) -> None:
        def read(u: UOp) -> tuple[str, ...] | None:
            if not u.is_realized:
                return None
            return self.folder.keep_all(moved.get(id(u.buffer), u.buffer))

        packer = Packer(read, self.reference.variables)
        evidence.values = [None] * len(self._views)
        for number, view in enumerate(self._views):
            try:
                if view is not None:
                    evidence.got_roots[number] = packer.pack(view)
            except CannotPack as error:
                evidence.unchecked.append(f"output {number}: {error}")
        evidence.got = packer.graph
