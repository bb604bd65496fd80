"""What random programs avoid: stock tinygrad 0.12.0 gets it wrong without any scope.

A value has **traits** and passes them on to its readers; some ops are not drawn for a value with a trait.

- divided: a condition on a quotient is wrong if it is padded twice in one kernel, as in
  `(x / y > z).where(x, z).cumsum(0)`
- repeated, then mixed: a reduce of all axes counts too often if a repeated axis is merged with another or padded,
  as in `x.unsqueeze(1).expand(2, 3, 2).flatten(1, 2).sum()`

Places in ops.py and source.py that avoid one form of an op say why there.
"""

from __future__ import annotations

Traits = frozenset[str]

NONE: Traits = frozenset()
DIVIDED: Traits = frozenset({"divided"})
REPEATED: Traits = frozenset({"repeated"})
# a gradient divides by the number of the largest, and repeats what a sum made one
DERIVED = DIVIDED | REPEATED

DIVIDES = {"recip", "softmax", "normalize", "tanh"}
CONDITIONS = {"above", "select", "where", "relu", "index_tensor", "argmax"}
REPEATS = {"repeat"}
MERGES = {"flatten", "merge", "split", "cat_flat", "outer", "pad", "cat", "twice", "stack", "roll"}
SUMS = {"sum", "sum_all", "sum_keep", "mean", "prod", "cumsum", "normalize", "deviation", "softmax", "times_sum"}
SUMS |= {"stack_sums", "matmul"}


# the end of the traceback where stock's codegen finds no order for the loops of a kernel, as in
# `y = Tensor.cat(x, x)[[5, 4]].min(0).T; (y - y * 0.7)[:, Tensor([1])]` for an x of shape (3, 5, 5) that is padded
NO_LOOP_ORDER = "assert y.src[1] not in x.backward_slice_with_self"
# stock's codegen moves a load out of a reduce and back for ever where masks of several padded values meet, as in
# `v[[1, 1]] = v[[1, 1]] * 0.5` inside a scope of method="pad_reduce" that is flipped after it
NO_END_OF_LOADS = "in reduce_load_collapse"
NO_END = "infinite loop in graph_rewrite"


def is_safe(op: str, traits: Traits) -> bool:
    if op in CONDITIONS and "divided" in traits:
        return False
    return not (op in SUMS and "mixed" in traits)


def traits_after(op: str, traits: Traits) -> Traits:
    if op in DIVIDES:
        traits |= DIVIDED
    if op in MERGES and "repeated" in traits:
        traits |= {"mixed"}
    if op in REPEATS:
        traits |= REPEATED
    return traits
