"""What `bisect --reduce` puts in the place of nodes. A failure means that it stops at a program that is larger than it
must be, or tries what is no smaller."""

from __future__ import annotations

from tinygrad import Tensor, dtypes
from tinygrad.uop.ops import UOp

from vmapdbg.child.reduce.smaller import (
    earlier_outputs,
    fewer_outputs,
    list_replacements,
    list_sources,
    measure,
    replace_node,
    replacements_of,
)


def make() -> tuple[Tensor, Tensor]:
    """A sum and its readers; the sum is read twice."""
    x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
    total = (x * 2).sum(1)
    return total, (total + 1) * total


def test_what_removes_most_comes_first() -> None:
    """Only then a large graph becomes a small one in few trials."""
    _, out = make()
    tried = list(dict.fromkeys(u for u, _ in list_replacements([out.uop])))
    assert set(tried[:2]) == set(out.uop.src)
    for u in tried:
        assert all(tried.index(s) > tried.index(u) for s in u.src if s in tried)


def test_replacements_have_the_shape_and_dtype_of_the_node() -> None:
    _, out = make()
    ways = list(list_replacements([out.uop]))
    assert {"BUFFER", "CONST"} <= {v.op.name for _, made in ways for v in made.toposort()}
    for u, made in ways:
        assert (made.shape, made.dtype) == (u.shape, u.dtype)
        (smaller,) = replace_node([out.uop], u, made)
        assert smaller.shape == out.uop.shape


def test_an_input_for_a_node_is_the_same_when_it_is_asked_for_again() -> None:
    total, _ = make()
    assert next(replacements_of(total.uop)) is next(replacements_of(total.uop))


def test_a_chain_of_movements_and_casts_has_a_way_past_it() -> None:
    x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
    chain = x.pad(((0, 2), (0, 0))).reshape(12).shrink(((0, 6),)).reshape(2, 3)
    made = list_sources(chain.uop)
    assert any(measure([one])[0] < measure([chain.uop])[0] - 2 for one in made)
    casts = x.cast(dtypes.int).cast(dtypes.bool).cast(dtypes.float)
    assert x.uop in list_sources(casts.uop)


def test_outputs_are_left_out_one_by_one_and_in_halves() -> None:
    roots = [Tensor([float(i)]).realize().uop for i in range(4)]
    tried = [tuple(made) for made in fewer_outputs(roots)]
    assert all((root,) in tried for root in roots)
    assert (roots[0], roots[1]) in tried
    assert (roots[0], roots[1], roots[3]) in tried


def test_of_many_earlier_values_some_far_apart_come_first() -> None:
    u: UOp = Tensor([1.0, 2.0]).realize().uop
    for _ in range(300):
        u = u + u
    tried = [len(made[0].toposort()) for made in earlier_outputs([u])]
    assert max(tried[:20]) > 250
    assert sorted(set(tried)) == sorted(tried)


def test_a_constant_is_smaller_than_the_node_it_replaces() -> None:
    total, out = make()
    (smaller,) = replace_node([out.uop], total.uop, total.uop.const_like(1))
    assert measure([smaller]) < measure([out.uop])
