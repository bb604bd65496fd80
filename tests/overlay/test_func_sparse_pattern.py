"""`jacobian_sparsity` never misses a nonzero, and says where the known patterns are to the place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from refusals import Refusals, check_refusal, each_refusal
from scopes import numbers
from tinygrad import Tensor, TinyJit, dtypes
from tinygrad.func import SparsityPattern, color, jacobian_sparsity, jvp, sparse_jacobian, vmap
from tinygrad.uop.ops import KernelInfo, UOp
from tinygrad_overlay._func import pattern as places
from tinygrad_overlay._func import sparsity
from tinygrad_overlay._func.set_ids import FewIds

F64 = np.float64
Step = Callable[[Tensor], Tensor]


def vector(n: int, seed: int = 0) -> Tensor:
    return Tensor(numbers(n, dtype=F64, seed=seed)).realize()


def copy(out: UOp, inp: UOp) -> UOp:
    i = UOp.range(2, 0)
    return out[i].store(inp[i]).end(i).sink(arg=KernelInfo(name="copy"))


def in_kernel(x: Tensor) -> Tensor:
    return Tensor.custom_kernel(Tensor.empty(2), x, fxn=copy)[0]


def constant(*shape: int, seed: int = 5) -> Tensor:
    return Tensor(numbers(*shape, dtype=F64, seed=seed))


def dense_jacobian(fn: Step, x: Tensor) -> Tensor:
    """(m, n), one JVP for each element of x. The tangents are data: nothing of the sparse path is used."""
    tangents = Tensor(np.eye(int(x.shape[0]))).realize()
    return vmap(lambda t: jvp(fn, (x,), (t,))[1].flatten(), out_axes=1)(tangents)


def dense_at_points(fn: Step, n: int, points: int = 3) -> tuple[Tensor, np.ndarray]:
    """Random points (points, n), and the dense Jacobian at each of them."""
    xs = Tensor(numbers(points, n, dtype=F64, seed=3)).realize()
    return xs, vmap(lambda x: dense_jacobian(fn, x))(xs).numpy()


# *** exact patterns: of each of these, every place of the pattern is nonzero at some point

MASK = np.array([[1, 0, 0, 2, 0, 0], [0, 0, 3, 0, 0, 4], [0, 0, 0, 0, 0, 0]], F64)


def difference(x: Tensor) -> Tensor:
    p = x.pad((1, 1))
    return p[:-2] * x - 2 * x + p[2:].sin()


def rotate(x: Tensor) -> Tensor:
    c, s, zero = x[0].cos(), x[0].sin(), Tensor(0.0, dtype=dtypes.float64)
    matrix = Tensor.stack(c, -s, zero, s, c, zero, zero, zero, zero + 1).reshape(3, 3)
    return matrix @ x[1:4]


def write_rows(x: Tensor) -> Tensor:
    def row(v: Tensor) -> Tensor:
        z = v * 2
        z[0] = v[1] * v[1]
        return z

    return vmap(row)(x.reshape(3, 2)).flatten()


EXACT: dict[str, Step] = {
    "tridiagonal": difference,
    "reshape_permute_flip": lambda x: x.reshape(2, 3).permute(1, 0).flip(0).flatten() ** 2,
    "shrink_expand": lambda x: (x[1:4].unsqueeze(1).expand(3, 2) * x[:2]).flatten(),
    "stack_and_cat": lambda x: Tensor.cat(x[4:], Tensor.stack(x[0], x[0] * x[3]), x[:1]),
    "cumsum": lambda x: (x * x).cumsum(),
    "sums": lambda x: x.reshape(2, 3).sum(0).cat(x.reshape(2, 3).mean(1)),
    "product": lambda x: x.reshape(3, 2).prod(1),
    "list_index": lambda x: x[[3, 0, 0, 5]].exp(),
    "tensor_index": lambda x: x[Tensor([5, 1, 2])] * x[:3],
    "matrix_of_data": lambda x: Tensor(MASK) @ x,
    "half_masked": lambda x: Tensor([True, False, True, False, False, True]).where(x, x.flip(0) * 2),
    "triangle": lambda x: Tensor.ones(6, 6, dtype=dtypes.float64).tril() @ x.sin(),
    "matrix_with_zeros_of_x": rotate,
    "constant_rows": lambda x: x[:2].cat(constant(2)) * x[2:],
    "diag": lambda x: (x.diag() @ x.exp().unsqueeze(1)).flatten(),
    "convolution": lambda x: x.reshape(1, 1, 6).conv2d(constant(2, 1, 3)).flatten(),
    "dilated": lambda x: x.reshape(1, 1, 6).conv2d(constant(1, 1, 2), dilation=2, padding=1).flatten(),
    "softmax_of_blocks": lambda x: x.reshape(2, 3).softmax(1).flatten(),
    "detach": lambda x: x * x.flip(0).detach(),
    "comparison": lambda x: (x > x.flip(0)).cast(dtypes.float64) + x.round() + x,
    "vmap": lambda x: vmap(lambda v: v * v.sum())(x.reshape(3, 2)).flatten(),
    "vmap_columns": lambda x: vmap(lambda v: v.cumsum(), in_axes=1, out_axes=1)(x.reshape(3, 2)).flatten(),
    "vmap_outer": lambda x: vmap(lambda v: v.sin() * v.sum(), axis_type="outer")(x.reshape(3, 2)).flatten(),
    "vmap_pad_reduce": lambda x: vmap(lambda v: v * v.sum(), method="pad_reduce")(x.reshape(3, 2)).flatten(),
    "vmap_shared": lambda x: vmap(lambda v, w: v * w, (0, None))(x[:4].reshape(2, 2), x[5]).flatten(),
    "vmap_data": lambda x: vmap(lambda v, a: v * a)(x.reshape(3, 2), Tensor(MASK[:, 2:4])).flatten(),
    "vmap_index": lambda x: vmap(lambda v: v[[1, 0, 1]], out_axes=1)(x.reshape(2, 3)).flatten(),
    "vmap_nested": lambda x: vmap(lambda a: vmap(lambda b: a.sum() * b * b)(a))(x.reshape(2, 3)).flatten(),
    "vmap_all_pairs": lambda x: vmap(lambda a: vmap(lambda b: a.sin() * b)(x[3:]))(x[:3]).flatten(),
    "vmap_setitem": write_rows,
}


@pytest.mark.parametrize("name", EXACT)
def test_pattern_is_exact(name: str) -> None:
    """A place too many costs a colour, a place too few is a wrong Jacobian."""
    pattern = jacobian_sparsity(EXACT[name], vector(6))
    _, dense = dense_at_points(EXACT[name], 6)
    np.testing.assert_array_equal(pattern.todense(), (dense != 0).any(axis=0))


# *** where nearly all is zero: what an index picks, and what is added up by index

PLACES = Tensor([4, 0, 4, 9, -1])
OTHERS = Tensor([1, 1, 0, 3, 2])


def scatter(x: Tensor, axis: int, reduce: Any = "sum") -> Tensor:
    """The five numbers of a row are added up in four; the fourth place, 9, and -1 are no place."""
    values = (x * x.flip(0))[:5].sin()
    shape, index = ((4, 2), PLACES.reshape(5, 1)) if axis == 0 else ((2, 4), PLACES.reshape(1, 5))
    spread = index.expand(5, 2) if axis == 0 else index.expand(2, 5)
    return Tensor.zeros(*shape, dtype=dtypes.float64).scatter_reduce(
        axis, spread, values.reshape(index.shape).expand(spread.shape), reduce
    )


INDEXED: dict[str, Step] = {
    "gather": lambda x: x.reshape(2, 3).gather(1, Tensor([[2, 0], [1, 1]])).flatten(),
    "rows": lambda x: x.reshape(3, 2)[Tensor([2, 0, 2])].flatten() ** 2,
    "columns": lambda x: x.reshape(2, 3)[:, Tensor([2, 0])].flatten(),
    "two_indices": lambda x: x.reshape(2, 3)[Tensor([1, 0, 1]), Tensor([2, 2, 0])],
    "two_indices_apart": lambda x: x.reshape(3, 1, 2)[Tensor([1, 0]), :, Tensor([1, 1])].flatten(),
    "index_of_two_axes": lambda x: (x * 2)[Tensor([[1, 5], [0, 1]])].flatten().cumsum(),
    "one_hot": lambda x: (Tensor([3, 1]).one_hot(6) * x).sum(1),
    "one_hot_matmul": lambda x: (Tensor([3, 1]).one_hot(6).cast(dtypes.float64) @ x.reshape(6, 1)).flatten(),
    "one_hot_of_x": lambda x: (Tensor([3, 1]).one_hot(6) * x).flatten(),
    "one_hot_padded": lambda x: (
        (Tensor([3, 1]).one_hot(6) * x).pad((1, 0))[:, 2:].flip(1).reshape(5, 2).permute(1, 0).flatten()
    ),
    "one_hot_and_zeros": lambda x: (
        (Tensor([3, 1, 9]).one_hot(6) * Tensor([0.0, 1, 1, 0, 1, 1])).cast(dtypes.float64) * x
    ).sum(1),
    "one_hot_repeated": lambda x: (
        (Tensor([3, 1]).one_hot(6) * x).reshape(2, 1, 3, 2).expand(2, 2, 3, 2).permute(2, 0, 3, 1).flip(1).flatten()
    ),
    "one_hot_split": lambda x: (
        (Tensor([3, 1]).one_hot(6) * x).reshape(4, 3).shrink(((1, 3), None)).pad(((1, 0), (0, 2))).flatten()
    ),
    "scatter_rows": lambda x: scatter(x, 0).flatten(),
    "scatter_columns": lambda x: scatter(x, 1).flatten(),
    "scatter_mean": lambda x: scatter(x, 1, "mean").flatten(),
    "scatter_max": lambda x: scatter(x, 1, "amax").flatten(),
    "assembly": lambda x: Tensor.zeros(6, dtype=dtypes.float64).scatter_reduce(
        0, OTHERS, (x[OTHERS] - x[:5]).sin(), "sum"
    ),
    "scatter_product": lambda x: scatter(x, 1, "prod").flatten(),
    "nothing": lambda x: (Tensor([9, -1]).one_hot(6) * x).sum(1) + x[:2],
    "set": lambda x: Tensor.zeros(4, dtype=dtypes.float64).scatter(0, OTHERS, x[:5]),
}


@pytest.mark.parametrize("name", [*EXACT, *INDEXED])
def test_a_mostly_zero_value_has_the_same_pattern(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large product with a one-hot only the nonzeros are looked at; here of each."""
    program = {**EXACT, **INDEXED}[name]
    whole = jacobian_sparsity(program, vector(6))
    monkeypatch.setattr(sparsity, "MANY", 1)
    monkeypatch.setattr(sparsity, "PART", 1)
    few = jacobian_sparsity(program, vector(6))
    np.testing.assert_array_equal(few.todense(), whole.todense())
    if name in INDEXED:
        _, dense = dense_at_points(program, 6)
        missed = (dense != 0).any(axis=0) & ~few.todense()
        assert not missed.any(), np.argwhere(missed)


def test_an_assembly_grows_with_its_nonzeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """The forces of a chain of springs, added up at their ends: no array of springs times nodes is made."""
    n = 20_000
    first = Tensor(np.arange(n - 1, dtype=np.int32)).realize()

    def forces(x: Tensor) -> Tensor:
        force = (x[first + 1] - x[first]).sin()
        return (
            Tensor.zeros(n, dtype=dtypes.float64)
            .scatter_reduce(0, first, force, "sum")
            .scatter_reduce(0, first + 1, -force, "sum")
        )

    monkeypatch.setattr(FewIds, "dense", in_few_places)
    pattern = jacobian_sparsity(forces, vector(n))
    rows = np.arange(n)
    want = SparsityPattern(
        (n, n), np.concatenate([rows, rows[1:], rows[:-1]]), np.concatenate([rows, rows[:-1], rows[1:]])
    )
    np.testing.assert_array_equal(pattern.rows, want.rows)
    np.testing.assert_array_equal(pattern.cols, want.cols)


def in_few_places(few: FewIds) -> Any:
    assert np.prod([size for size, places in zip(few.shape, few.at, strict=True) if places is not None]) < 100_000
    return dense(few)


dense = FewIds.dense


def test_known_counts() -> None:
    assert jacobian_sparsity(difference, vector(4096)).nnz == 3 * 4096 - 2
    order = np.random.default_rng(0).permutation(500)
    pattern = jacobian_sparsity(lambda x: x[Tensor(order)] ** 2, vector(500))
    assert pattern.rows.tolist() == list(range(500))
    assert pattern.cols.tolist() == order.tolist()
    blocks = jacobian_sparsity(lambda x: vmap(lambda v: v.softmax())(x.reshape(50, 4)), vector(200))
    np.testing.assert_array_equal(blocks.todense(), np.kron(np.eye(50), np.ones((4, 4))))


def test_pattern_holds_for_all_values() -> None:
    """Both sides of a `where`, all of what a maximum or a sort may choose, and the zero of a product at x = 0."""
    for fn in (lambda x: (x > 0).where(x, x.flip(0)), lambda x: x.maximum(x.flip(0))):
        np.testing.assert_array_equal(jacobian_sparsity(fn, vector(4)).todense(), np.eye(4) + np.eye(4)[::-1] > 0)
    for fn in (lambda x: x.max(), lambda x: x.sort()[0], lambda x: x[x.argmax()], lambda x: x[0] * x.sum()):
        assert jacobian_sparsity(fn, vector(4)).todense().all()
    assert jacobian_sparsity(lambda x: x.reshape(1, 1, 4, 4).max_pool2d(2), vector(16)).nnz == 16
    at_zero = Tensor.zeros(4, dtype=dtypes.float64).contiguous().realize()
    assert jacobian_sparsity(lambda x: x * x.flip(0), at_zero).nnz == 8
    assert jacobian_sparsity(lambda x: x.relu(), at_zero).nnz == 4


def test_pattern_inside_a_scope_is_that_of_all_steps() -> None:
    """The data differ from step to step of a scope around the call; one pattern must do for all of them."""
    found = []

    def step(x: Tensor, a: Tensor) -> Any:
        found.append(jacobian_sparsity(lambda v: a * v, x))
        return sparse_jacobian(lambda v: a * v, x, format="dense")

    a = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
    ret = vmap(step)(Tensor(numbers(2, 3, dtype=F64)), Tensor(a))
    assert (found[0].rows.tolist(), found[0].cols.tolist()) == ([0, 2], [0, 2])
    np.testing.assert_array_equal(ret.numpy(), [np.diag(row) for row in a])


# *** random programs


def add_second_diagonal(v: Tensor) -> Tensor:
    size = int(v.shape[0])
    return Tensor(np.eye(size) + np.eye(size, k=2)) @ v


STEPS: dict[str, Step] = {
    "sin": lambda v: v.sin(),
    "relu": lambda v: v.relu() + 0.1 * v,
    "times_flip": lambda v: v * v.flip(0),
    "pad": lambda v: v.pad((1, 2)),
    "shrink": lambda v: v[1:] if v.shape[0] > 2 else v,
    "stride": lambda v: v[::2] if v.shape[0] > 3 else v,
    "cumsum": lambda v: v.cumsum(),
    "pick": lambda v: v[[1, 0, -1, 1]],
    "pick_by_data": lambda v: v[Tensor([0, 1, 1, 0])],
    "mask": lambda v: v * (Tensor.arange(v.shape[0]) % 3 != 1),
    "mask_of_zeros": lambda v: v.pad((0, 2)) * v.pad((2, 0)),
    "where_data": lambda v: (Tensor.arange(v.shape[0]) % 2 == 0).where(v, v.flip(0)),
    "where_x": lambda v: (v > v.flip(0) + 0.01).where(v * 2, v[0]),
    "cat": lambda v: v[:3].cat(v[-2:] * 2),
    "band": add_second_diagonal,
    "outer_sum": lambda v: (v.unsqueeze(1) * v[:3]).sum(1),
    "windows": lambda v: v.pad((1, 1)).reshape(1, 1, -1).avg_pool2d((1, 3), stride=1).flatten(),
    # without ties: whether two products are equal depends on the last bit, and the derivative on that
    "maximum": lambda v: v.maximum(v.flip(0) + 0.01),
    "halves": lambda v: v.pad((0, v.shape[0] % 2)).reshape(2, -1).sum(0).pad((0, 1)),
    "rows": lambda v: vmap(lambda r: r * r.sum())(v.pad((0, v.shape[0] % 2)).reshape(-1, 2)).flatten(),
    "rows_outer": lambda v: vmap(lambda r, s: r[0] * s, (0, None))(v.pad((0, 4))[:4].reshape(2, 2), v[:3]).flatten(),
    "contiguous": lambda v: (v * 3).contiguous() + v,
    "softmax": lambda v: v.softmax(),
}


def build(names: list[str]) -> Step:
    def program(x: Tensor) -> Tensor:
        for name in names:
            # small numbers: a softmax of large ones has derivatives that are all rounding
            x = STEPS[name](x)[:12] * 0.1
        return x

    return program


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=5), st.sampled_from(["column", "row"]))
def test_no_nonzero_is_missed(names: list[str], partition: str) -> None:
    """A place that the pattern misses is added to another element of the Jacobian, without a word."""
    program = build(names)
    pattern = jacobian_sparsity(program, vector(6))
    try:
        xs, dense = dense_at_points(program, 6)
        got = sparse_jacobian(program, xs[0], pattern, color(pattern, partition), "dense").numpy()
    except RuntimeError as error:
        # stock tinygrad's rule for a sum over loads does not end for some of these, written without vmap too
        assume("infinite loop in graph_rewrite" not in str(error))
        raise
    missed = (dense != 0).any(axis=0) & ~pattern.todense()
    assert not missed.any(), np.argwhere(missed)
    np.testing.assert_allclose(got, dense[0], rtol=1e-9, atol=1e-12)


# *** what it refuses, and the pattern itself


REFUSALS: Refusals = {
    TypeError: {
        "only floats have a derivative": lambda: jacobian_sparsity(lambda x: x, Tensor([1, 2])),
        "x is of type tuple, not a Tensor": lambda: jacobian_sparsity(lambda x: x, (Tensor([1.0]),)),  # pyright: ignore
        "not a Tensor": lambda: jacobian_sparsity(lambda x: "text", vector(2)),
        "returned no Tensor": lambda: jacobian_sparsity(lambda x: None, vector(2)),
    },
    RuntimeError: {"cannot be realized": lambda: jacobian_sparsity(lambda x: x * x.max().item(), vector(2))},
    NotImplementedError: {"CUSTOM_KERNEL": lambda: jacobian_sparsity(in_kernel, vector(2))},
}


@each_refusal(REFUSALS)
def test_what_it_cannot_take(error: type[Exception], sentence: str, call: Any) -> None:
    check_refusal(error, sentence, call)


def test_no_pattern_while_jit_captures() -> None:
    """Otherwise the constants of this call would be the constants of all calls."""
    jitted = TinyJit(lambda x, a: sparse_jacobian(lambda v: v * a, x).values.realize())
    arguments = [(vector(3, i), Tensor([1.0, 0.0, 2.0], dtype=dtypes.float64).realize()) for i in range(2)]
    jitted(*arguments[0])
    with pytest.raises(RuntimeError, match="while TinyJit captures"):
        jitted(*arguments[1])


def test_several_results_are_one_after_the_other() -> None:
    pattern = jacobian_sparsity(lambda x: {"b": x[:2], "a": (x.sum(), x[2:] * 2)}, vector(3))
    np.testing.assert_array_equal(pattern.todense(), [[1, 1, 1], [0, 0, 1], [1, 0, 0], [0, 1, 0]])


def test_pattern_is_sorted_and_checked() -> None:
    pattern = SparsityPattern((2, 3), [1, 0, 1, 1], [2, 1, 0, 2])
    assert (pattern.rows.tolist(), pattern.cols.tolist(), pattern.nnz) == ([0, 1, 1], [1, 0, 2], 3)
    assert str(pattern) == "2 x 3, 3 nonzeros (50.00%)\n· ■ ·\n■ · ■"
    with pytest.raises(ValueError, match="do not fit in shape"):
        SparsityPattern((2, 3), [0], [3])
    with pytest.raises(ValueError, match="2 rows and 1 cols"):
        SparsityPattern((2, 3), [0, 1], [3])
    assert SparsityPattern((0, 0), [], []).nnz == 0


def test_a_pattern_keeps_its_places() -> None:
    """The pattern copies its arrays: later changes of them do not change it."""
    rows, cols = np.array([0, 1]), np.array([1, 2])
    pattern = SparsityPattern((2, 3), rows, cols)
    rows[0], cols[0] = 1, 0
    assert (pattern.rows.tolist(), pattern.cols.tolist()) == ([0, 1], [1, 2])
    with pytest.raises(ValueError, match="read-only"):
        pattern.rows[0] = 1


def test_a_long_pattern_is_sorted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last place is out of order, between two parts."""
    monkeypatch.setattr(places, "CHUNK", 4)
    cols = [0, 1, 2, 3, 4, 5, 6, 7, 7]
    pattern = SparsityPattern((1, 8), [0] * 9, cols)
    assert pattern.cols.tolist() == cols[:8]
    assert SparsityPattern((1, 8), [0] * 5, [0, 1, 2, 4, 3]).cols.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("width", [20, 78])
def test_picture_fits_and_shows_each_block(width: int) -> None:
    """The picture fits into the terminal, and shows every nonzero."""
    pattern = SparsityPattern((300, 200), [0, 150, 299], [0, 199, 3])
    lines = pattern.render(width).split("\n")
    assert max(map(len, lines)) <= width
    assert sum(c != "\u2800" for line in lines for c in line) == 3
    assert lines[0][0] == "⠁"
