"""What the scheduler reports: one method for each thing that it decides, or that happens.

The overlay has one observer at a time (`_state.observer`) and calls it from within tinygrad's passes. It never needs
an answer: whoever listens, the kernels are the same. UOps are handed over as they are, and not copied.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

UOp = Any


class Observer:
    """The observer where nobody looks: each report does nothing. A recorder derives from it.

    `listens` says whether somebody looks: where nobody does, the scheduler may take a result that it has already,
    instead of making it once more to tell the reasons.
    """

    listens = False

    def tensor_ready(self, module: ModuleType) -> None:
        """`tinygrad.tensor` was imported just now; nothing has used it yet."""

    def schedule_asked(self, key: bytes, cached: bool) -> None:
        """A schedule is asked for. `key` is that of its graph; with `cached` tinygrad has it, and no pass will run."""

    def uop_tagged(self, tagged: list[UOp]) -> None:
        """UOps get a tag, their index in `tagged`; the last call before a pass has them all."""

    def split_left_out(self, reduce: UOp, whole: Any) -> None:
        """A `reduce` that stock tinygrad would make in two kernels is one of the graph that `pass_starts` will be told
        of: `whole` has the axes along which it is a gather, and the shapes that stock would go through."""

    def pass_starts(
        self,
        tsink: UOp,
        toposort: dict[UOp, None],
        consumers: dict[UOp, dict[UOp, None]],
        forced: dict[UOp, tuple[str, UOp]],
        context: Any,
        scope_ranges: frozenset[UOp],
    ) -> None:
        """The rangeify pass runs on the graph of `tsink`.

        `forced` has the nodes that are realized whatever their ranges are: the rule, and the node it is because of.
        `context` is the pass's IndexingContext, which fills as it runs; `scope_ranges` are the RANGEs of vmap scopes.
        """

    def consumers_disagree(
        self, x: UOp, axes: list[int], batch_axes: list[UOp], consumers: dict[UOp, None], context: Any
    ) -> None:
        """The consumers of `x` ask for different ranges on `axes`, or for different indices in `batch_axes`."""

    def ranges_end(self, x: UOp, axes: list[int], ending: dict[UOp, UOp]) -> None:
        """`axes` of `x` get new ranges, because ranges end below it: `ending` maps each to the EXPAND it ends at."""

    def loops_named(self, named: Callable[[UOp], UOp]) -> None:
        """The walk over the graph is done: `named` gives an expression its final ranges."""

    def fusion_refused(self, x: UOp, refusal: Any) -> None:
        """A realize point stays at `x`: `refusal` has the patch that asked for it, and why."""

    def pass_repeats(self) -> None:
        """What was reported since `pass_starts` was an attempt: the stages run again."""

    def bufferize_made(self, node: UOp, buffer: UOp, ambient: tuple[UOp, ...]) -> None:
        """`buffer` is the BUFFERIZE of `node`, and closes the `ambient` ranges besides the node's own."""

    def removal_tried(
        self, src: UOp, buffer: UOp, index: UOp, result: UOp | None, again: bool, reused: Any | None
    ) -> None:
        """The cost function looked at `buffer`, the BUFFERIZE of the value `src`, for the reader `index`.

        `result` is what takes its place, None where it is kept. With `again` it is the guard's doing: the readers
        compute the value of a row again. `reused` has why it is kept, or would have been, so that its readers do not
        compute its value again: a rule and its numbers.
        """

    def buffer_stored(self, buffer: UOp, stored: UOp | None) -> None:
        """A BUFFERIZE became a store; `stored` is None for a LOCAL one, which its kernel stores when it is lowered."""

    def schedule_created(self, items: list[Any], buffers: UOp, /) -> None:
        """The schedule is there: its ExecItems, and a SINK with the buffers of each of them."""
