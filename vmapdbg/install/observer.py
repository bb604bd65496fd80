"""What the overlay reports: only what it alone knows. Everything else is seen by hooks (`vmapdbg/child/listen`).

The overlay has one observer at a time (`_state.observer`) and calls it from within tinygrad's passes. It never needs an
answer: the kernels are the same with every observer. UOps are handed over as they are, and not copied.
"""

from __future__ import annotations

from typing import Any

UOp = Any


class Observer:
    """The observer without a recorder: each report does nothing. The recorder derives from it.

    `listens` says whether the reports are recorded. If not, the scheduler may reuse a result instead of making it again
    for the reports.
    """

    listens = False

    def pause(self) -> None:
        """Until `resume`, the scheduler only tries something out: this is not in the schedule."""

    def resume(self) -> None:
        """Ends the last `pause`."""

    def pass_starts(
        self,
        tsink: UOp,
        toposort: dict[UOp, None],
        consumers: dict[UOp, dict[UOp, None]],
        context: Any,
        scope_ranges: frozenset[UOp],
    ) -> None:
        """The rangeify pass runs on the graph of `tsink`. `context` is its IndexingContext, with the ambient ranges of
        each node as `vmap_map`; `scope_ranges` are the RANGEs of vmap scopes."""

    def pass_repeats(self) -> None:
        """The pass that was reported last was an attempt: the stages run again."""

    def loops_bound(self, loops: dict[UOp, UOp]) -> None:
        """The walk over the graph is done: it put these RANGEs of scopes in the place of its own loops over them."""

    def fusion_refused(self, x: UOp, refusal: Any) -> None:
        """A realize point stays at `x`: `refusal` has the patch that asked for it, the rule and its numbers."""

    def split_left_out(self, reduce: UOp, whole: Any) -> None:
        """Stock tinygrad would make two kernels of `reduce`, a node of the graph that `pass_starts` will report:
        `whole` has the axes along which it is a gather, and the shapes that stock would go through."""

    def removal_decided(self, buffer: UOp, index: UOp, result: UOp | None, rule: str, numbers: dict[str, Any]) -> None:
        """A rule of the overlay decided about `buffer`, a BUFFERIZE, for its reader `index`, in place of stock's cost
        function or with the same answer. `result` takes its place, None if it is kept."""

    def store_closed(self, buffer: UOp, stored: UOp) -> None:
        """The GLOBAL BUFFERIZE `buffer` became a store, and the RANGEs that it closes are closed."""
