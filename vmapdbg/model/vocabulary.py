"""The accepted values of fields of the JSON documents, in one place.

An OPEN list grows with the patches, or with tinygrad: unknown values are read, too, so that an older vmapdbg reads what
a newer vmapdbg wrote. Unknown values of the other lists are refused when a document is read."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

T = TypeVar("T")
if TYPE_CHECKING:
    Open = Annotated[T, "open"]
else:

    class Open:
        """An OPEN list: a type checker sees `Open[Literal[...]]` as its words, a reader of documents as any string."""

        def __class_getitem__(cls, words: Any) -> Any:
            return Annotated[str, words]


# *** a capture

Mode = Literal["overlay", "observe"]
Outcome = Literal["kept", "removed"]
AddressSpace = Open[Literal["GLOBAL", "LOCAL", "REG"]]
# since 0.14 LOOP is only a loop of a program, and WEAK a loop of a schedule
_Loops = Literal["LOOP", "REDUCE", "OUTER"]
_Optimized = Literal["GLOBAL", "WARP", "LOCAL", "GROUP_REDUCE", "UPCAST", "UNROLL", "THREAD"]
AxisType = Open[Literal[_Loops, _Optimized, "WEAK", "DEVICE"]]
LoopKind = Literal["loop", "thread", "launch"]
Phase = Open[Literal["forward", "backward", "optimizer", "data"]]
"""The phase of a program: `data` makes values out of nothing (random numbers, constants, ranges)."""
CrashKind = Literal["error", "waits", "repeats", "grows"]
CrashStage = Literal["graph", "schedule", "codegen", "run"]
AccessKind = Literal["load", "store"]
ArgumentAccess = Literal["read", "write", "read-write"]

_ByPass = Literal["output", "always", "source-of", "assign", "outer-reduce", "consumers-disagree", "ending-ranges"]
# a patch refused a fusion that would remove the realize point
_ByPatch = Literal["fusion-guard", "local-budget", "fuse-broadcast", "realize-reused"]
_WithoutOverlay = Literal["stock", "decided-at", "forced"]
RealizedReason = Open[Literal[_ByPass, _ByPatch, _WithoutOverlay]]

# tinygrad/schedule/_refusals.py says what the numbers of these are
_RefusedForMemory = Literal["local-too-large", "local-over-budget", "local-read-often"]
_RefusedUntried = Literal["reduce-at-two-places", "not-settled", "not-tried", "codegen-fails"]
_RefusedForCost = Literal["no-kernel-saved", "more-work", "fewer-threads", "slower", "no-faster", "more-memory"]
_NoNumbers = Literal["no-rule", "folded", "same-index", "constant", "buffer-limit", "schedule-failed", "not-followed"]
Rule = Open[
    Literal[
        # a node is realized
        "output",  # also: why a BUFFERIZE is kept
        "always",  # nodes: itself
        "kept-scope",  # nodes: itself, a VMAPOUT under a CONTIGUOUS
        "source-of",  # nodes: what reads it
        "assign",
        "assigned-value",  # nodes: the ASSIGN
        "outer-reduce",
        "consumers-disagree",  # axis; nodes[i] is the first consumer that asks for ranges[i]
        "loops-not-shared",  # axis; nodes[i] is a consumer that asks for ranges[i]
        "ending-ranges",  # ranges[i] ends at nodes[i]
        "stock",
        "decided-at",  # at: a decision that has no name here; also about a BUFFERIZE
        "forced",  # by `bisect --decisions`, not by tinygrad; also about a BUFFERIZE
        # a fusion is refused
        _RefusedForMemory,
        _RefusedUntried,
        _RefusedForCost,
        # a value that its readers would compute again; also about a BUFFERIZE
        "stored-once",
        "not-paid",
        "over-memory",
        # a BUFFERIZE is kept or removed
        "never-removed",  # numbers: op
        "not-removable",
        "computed-again",
        "never-buffered",  # numbers: op
        "many-buffers",  # numbers: buffers, limit
        "reduce-reads-buffer",  # numbers: reduces
        "reduce-computed-again",  # numbers: reduces
        "cost-function",
        "few-buffers",  # numbers: buffers, limit
        _NoNumbers,
    ]
]
"""The rule of a `Reason`, and its operands."""

UnsplitRule = Open[Literal["gather"]]  # why a reduce is not split; its operands are fields of `Unsplit`

# *** a diff

NodeField = Literal["in_ranges", "out_ranges", "ambient", "realized", "src"]
BufferizeField = Literal["closed_ranges", "ambient", "size", "bytes", "addrspace", "outcome", "reason"]
KernelField = Literal[
    "source", "global_size", "local_size", "local_bytes", "threads", "launches", "executed_ops", "bytes"
]
ChangeStatus = Literal["unchanged", "changed", "only-before", "only-after"]
KernelStatus = Literal["unchanged", "changed", "only-before", "only-after", "fused-from", "split-into"]
MatchedBy = Literal["", "outputs", "nodes", "key", "source", "similarity"]
ValueStatus = Literal["equal", "close", "different", "unknown"]
PairedBy = Literal["", "line", "order", "graph", "alike"]
ValueLeft = Literal["", "one-side", "not-paired", "output-count", "not-read", "not-deterministic"]

# *** a diff of two saved runs

_Fusion = Literal["fused", "split", "regrouped"]
_Work = Literal["more-launches", "fewer-launches", "more-ops", "fewer-ops", "more-bytes", "fewer-bytes"]
_Threads = Literal["fewer-threads", "more-threads", "more-local-memory", "less-local-memory"]
_Other = Literal["other-launch-dimensions", "other-source", "other-order"]
_GoneOrNew = Literal["kernel-gone", "kernel-new", "schedule-gone", "schedule-new"]
_Copies = Literal["fewer-copies", "more-copies"]
SuiteChangeKind = Open[Literal[_Fusion, _Work, _Threads, _Other, _GoneOrNew, _Copies]]

# *** what check finds

ComparisonStatus = Literal["equal", "close", "rounding", "wrong"]

# *** memory

BufferKind = Literal["kernel", "copy", "data", "empty"]
MemoryAdviceKind = Literal["recompute", "half", "free"]

# *** a drawing

StageName = Literal["tensor", "ranges", "kernels"]
Mark = Literal["common", "removed", "added"]
EdgeKind = Literal["data", "kept", "removed", "reference"]

# *** a search

OutcomeKind = Literal["values", "kernels", "findings", "crash"]  # how `bisect` compares outcomes
MeasureKind = Literal["time", "ops", "bytes", "memory"]  # what `bisect --commits` measures
TuneOutcome = Literal["unchanged", "helps", "no-better", "same-kernels", "other-values", "fails"]
"""What came of a run of `tune` with edits."""

Sort = Literal["time", "median", "times", "ops", "bytes", "name"]
"""By what kernels and functions are sorted: the time of all launches, of one, their number, their work, or the name."""
