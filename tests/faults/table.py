"""The faults by their names. `python -m bench.faults` prints what the tool finds of them."""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

from tests.faults import plants, snippets
from tests.faults.plants import Plant


@dataclass(frozen=True)
class Fault:
    """`plant` breaks the scheduler of this process. `snippet` is the program; the node on its line `# here` has the
    fault, and its kernels are rendered for `target`. Lint must report one of `codes` for that line, and for a node
    with that `op` if it is given. Without codes lint cannot see the fault, and `unseen` says why. `wrong_values`:
    whether the program gives other values (for `check`); otherwise the fault stops the program, or makes it slow.
    """

    what: str
    snippet: str
    plant: Plant
    codes: tuple[str, ...] = ()
    op: str = ""
    unseen: str = ""
    target: str = "c"
    wrong_values: bool = True


_VALUES = "every address is right, only the values are wrong"

FAULTS: dict[str, Fault] = {
    # *** ranges of a vmap scope
    "ambient-not-closed": Fault(
        "ambient ranges left out of BUFFERIZE and INDEX",
        snippets.SCOPE,
        plants.without_patches("ambient-ranges"),
        ("VD101",),
        op="CONTIGUOUS",
    ),
    "ambient-not-closed-outer": Fault(
        "the same, in an OUTER scope", snippets.OUTER_SCOPE, plants.without_patches("ambient-ranges"), ("VD101",)
    ),
    "ambient-not-indexed": Fault(
        "ambient range left out of INDEX: the reader takes the first row",
        snippets.SCOPE,
        plants.change_bufferize(plants.read_first_row),
        unseen=_VALUES,
    ),
    "ambient-wrong-order": Fault(
        "ambient ranges of INDEX in another order than those of BUFFERIZE",
        snippets.NESTED,
        plants.change_bufferize(plants.swap_ambient_in_index),
        ("VD105",),
        op="CONTIGUOUS",
    ),
    "ambient-wrong-order-square": Fault(
        "the same, where both ranges have the same size",
        snippets.SQUARE_NESTED,
        plants.change_bufferize(plants.swap_ambient_in_index),
        unseen=_VALUES,
    ),
    "nested-range-dropped": Fault(
        "of two ambient ranges the first is not closed",
        snippets.NESTED,
        plants.change_bufferize(plants.drop_first_ambient),
        ("VD101",),
        op="CONTIGUOUS",
    ),
    "first-source-only": Fault(
        "the ambient ranges of a node are those of its first source",
        snippets.NESTED,
        plants.without_patches("nested-ranges"),
        ("VD101",),
        op="CONTIGUOUS",
    ),
    "range-closed-twice": Fault(
        "an ambient range is closed twice: the buffer has one axis too many",
        snippets.SCOPE,
        plants.change_bufferize(plants.close_ambient_twice),
        ("VD106",),
        op="CONTIGUOUS",
        wrong_values=False,
    ),
    "range-not-closed": Fault(
        "no patch closes the range of the scope",
        snippets.SCOPE,
        plants.without_patches("ambient-ranges", "close-ranges"),
        ("VD107",),
        wrong_values=False,
    ),
    "close-forgotten": Fault(
        "close_ranges closes nothing",
        snippets.SCOPE,
        lambda patch: (plants.without_patches("ambient-ranges")(patch), plants.leave_open(patch))[0],
        ("VD107",),
        op="CONTIGUOUS",
        wrong_values=False,
    ),
    "close-last-forgotten": Fault(
        "the END of a store lacks its last range",
        snippets.COPY,
        plants.change_stored(plants.end_one_less),
        ("VD107",),
        wrong_values=False,
    ),
    # *** input ranges of movement ops
    "permute-not-inverted": Fault(
        "PERMUTE takes its argument for its inverse",
        snippets.PERMUTE,
        plants.change_movement(Ops.PERMUTE, lambda shape, arg, rngs: tuple(rngs[p] for p in arg)),
        ("VD105",),
        op="PERMUTE",
    ),
    "permute-not-inverted-square": Fault(
        "the same on a square: two ranges swapped",
        snippets.SQUARE,
        plants.change_movement(Ops.PERMUTE, lambda shape, arg, rngs: rngs),
        unseen=_VALUES,
    ),
    "pad-without-valid": Fault(
        "the valid of a PAD is dropped",
        snippets.PAD,
        plants.change_movement(
            Ops.PAD, lambda shape, arg, rngs: tuple(r - s for r, (s, _) in zip(rngs, arg, strict=True))
        ),
        ("VD105",),
        op="PAD",
    ),
    "pad-off-by-one": Fault(
        "the valid of a PAD lets one element too many through",
        snippets.PAD,
        plants.change_movement(
            Ops.PAD,
            lambda shape, arg, rngs: tuple(
                r if (s, e) == (0, 0) else ((r >= s) & (r < (n + s + 1))).where(r - s, UOp.invalid())
                for r, n, (s, e) in zip(rngs, shape, arg, strict=True)
            ),
        ),
        ("VD105",),
        op="PAD",
    ),
    "shrink-off-by-one": Fault(
        "SHRINK starts one element later",
        snippets.SHRINK,
        plants.change_movement(
            Ops.SHRINK, lambda shape, arg, rngs: tuple(r + s + 1 for r, (s, _) in zip(rngs, arg, strict=True))
        ),
        ("VD105",),
        op="SHRINK",
    ),
    "flip-off-by-one": Fault(
        "FLIP counts down from the size",
        snippets.FLIP,
        plants.change_movement(
            Ops.FLIP,
            lambda shape, arg, rngs: tuple(n - r if f else r for n, r, f in zip(shape, rngs, arg, strict=True)),
        ),
        ("VD105",),
        op="FLIP",
    ),
    "expand-keeps-range": Fault(
        "EXPAND reads its one element with the range of the larger axis",
        snippets.EXPAND,
        plants.change_movement(Ops.EXPAND, lambda shape, arg, rngs: rngs),
        ("VD105",),
        op="EXPAND",
    ),
    "reshape-as-is": Fault(
        "RESHAPE hands the ranges on as they are",
        snippets.RESHAPE,
        plants.change_movement(Ops.RESHAPE, lambda shape, arg, rngs: rngs if len(rngs) == len(shape) else rngs[:1]),
        ("VD105",),
        op="RESHAPE",
    ),
    # *** reduces
    "reduce-other-range": Fault(
        "a reduce ends a range that its value does not have, and not the one it has",
        snippets.REDUCE,
        plants.change_input_ranges(Ops.REDUCE_AXIS, plants.reduce_other_axis),
        ("VD107", "VD105"),
        op="REDUCE_AXIS",
        wrong_values=False,
    ),
    "reduce-other-axis": Fault(
        "a reduce runs over the other axis",
        snippets.REDUCE,
        plants.change_kernels(plants.change_load(plants.swap_ranges)),
        ("VD105",),
    ),
    "reduce-other-axis-square": Fault(
        "the same on a square",
        snippets.SQUARE_REDUCE,
        plants.change_kernels(plants.change_load(plants.swap_ranges)),
        unseen=_VALUES,
    ),
    "first-consumer-wins": Fault(
        "two readers ask for different ranges, and the first gets its way",
        snippets.TWO_READERS,
        plants.first_consumer_wins,
        unseen=_VALUES,
    ),
    "reduce-too-short": Fault(
        "a reduce leaves out the last element",
        snippets.REDUCE,
        plants.change_kernels(plants.resize_range(-1, plants.AxisType.REDUCE)),
        unseen=_VALUES,
    ),
    # *** buffers and stores
    "buffer-too-short": Fault(
        "a buffer is one element short", snippets.COPY, plants.change_stored(plants.shorten_buffer), ("VD105",)
    ),
    "store-stride-too-small": Fault(
        "a stride of a store is one too small",
        snippets.COPY,
        plants.change_kernels(plants.change_address(plants.change_stride(-1))),
        ("VD101", "VD106"),
    ),
    "store-stride-too-large": Fault(
        "a stride of a store is one too large",
        snippets.COPY,
        plants.change_kernels(plants.change_address(plants.change_stride(1))),
        ("VD105",),
    ),
    "store-ranges-swapped": Fault(
        "two ranges of a store's address are swapped",
        snippets.COPY,
        plants.change_kernels(plants.change_address(plants.swap_ranges)),
        ("VD105",),
    ),
    "store-shifted": Fault(
        "a store writes one element further",
        snippets.COPY,
        plants.change_kernels(plants.change_address(lambda address: address + 1)),
        ("VD105",),
    ),
    "store-range-lost": Fault(
        "a store's address lacks a range",
        snippets.COPY,
        plants.change_kernels(plants.change_address(plants.lose_range)),
        ("VD101",),
    ),
    "loop-too-short": Fault(
        "a loop of a kernel ends one step early",
        snippets.COPY,
        plants.change_kernels(plants.resize_range(-1)),
        ("VD106",),
    ),
    "loop-too-long": Fault(
        "a loop of a kernel runs one step more",
        snippets.COPY,
        plants.change_kernels(plants.resize_range(1)),
        ("VD105", "VD101"),
    ),
    "load-stride-too-large": Fault(
        "a stride of a load is one too large",
        snippets.TWO,
        plants.change_kernels(plants.change_load(plants.change_stride(1))),
        ("VD105",),
    ),
    "load-range-lost": Fault(
        "a load's address lacks a range: one row is read again and again",
        snippets.TWO,
        plants.change_kernels(plants.change_load(plants.lose_range)),
        unseen=_VALUES,
    ),
    "alias": Fault(
        "a kernel reads the buffer that it writes",
        snippets.SQUARE,
        plants.change_kernels(plants.read_own_output),
        unseen=_VALUES,
    ),
    # *** fusion
    "bufferize-removed": Fault(
        "the cost function removes a BUFFERIZE that many elements read",
        snippets.MATMUL,
        plants.remove_every_bufferize,
        ("VD104",),
        wrong_values=False,
    ),
    "no-ending-ranges": Fault(
        "the realize point where ranges end is gone: a reduce runs for each element that reads it",
        snippets.BROADCAST,
        plants.no_ending_ranges,
        ("VD104",),
        target="metal",
        wrong_values=False,
    ),
    "parallelism-lost": Fault(
        "a kernel is not split over threads",
        snippets.BROADCAST,
        plants.one_thread,
        ("VD103",),
        target="metal",
        wrong_values=False,
    ),
    "guard-never-refuses": Fault(
        "every realize point falls that fuse-broadcast can take away, whatever it costs",
        snippets.FEED_FORWARD,
        plants.guard_never_refuses,
        ("VD103",),
        target="metal",
        wrong_values=False,
    ),
    "local-too-large": Fault(
        "a buffer is kept in LOCAL memory, whatever its size",
        snippets.WIDE,
        plants.partial_realize,
        ("VD102",),
        target="metal",
        wrong_values=False,
    ),
    "group-not-counted": Fault(
        "the memory of a GROUP reduce is not counted",
        snippets.GROUP,
        plants.forget_group_memory,
        ("VD102",),
        target="metal",
        wrong_values=False,
    ),
    "group-gate-dropped": Fault(
        "every thread of a group stores the result of a GROUP reduce",
        snippets.GROUP,
        plants.change_lowered(plants.drop_gates),
        ("VD101",),
        target="metal",
        wrong_values=False,
    ),
    "barrier-removed": Fault(
        "no BARRIER between the stores to LOCAL memory and the loads of other threads",
        snippets.GROUP,
        plants.change_lowered(plants.drop_barriers),
        ("VD113",),
        target="metal",
    ),
}
