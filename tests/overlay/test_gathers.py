"""What is picked by an index is loaded once, at any size: no kernel loops over what it is picked from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tinygrad import Device, Tensor, dtypes
from tinygrad.codegen import get_program
from tinygrad.dtype import DType
from tinygrad.engine.realize import run_schedule
from tinygrad.engine.schedule import schedule_cache
from tinygrad.func import SparsityPattern, sparse_jacobian, vmap
from tinygrad.nn import Embedding
from tinygrad.schedule import rangeify
from tinygrad.uop.ops import Ops, UOp
from tinygrad_overlay import _state
from tinygrad_overlay.schedule.rangeify import find_gathered

# the elements of an axis, enough for a split in 256 and the rest: stock splits from 300 on here, not from 32,768
N = 512
PICKED = np.array([3, 0, 511, 70, 3], np.int32)
ROW = np.array([1, 0, 3, 2, 1], np.int32)
ROWS = np.arange(5)

Program = Callable[[], Tensor]


@pytest.fixture(autouse=True)
def early_split(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stock splits a reduce of 300 elements. No schedule is taken over from before, or left for after."""
    monkeypatch.setattr(rangeify, "getenv", lambda name, default=0: 300 if "THRESHOLD" in name else default)
    schedule_cache.clear()
    yield
    schedule_cache.clear()


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 9, shape)


def data(array: np.ndarray, dtype: DType = dtypes.float) -> Tensor:
    return Tensor(array).cast(dtype).contiguous().realize()


def index(array: np.ndarray, dtype: DType = dtypes.int) -> Tensor:
    return data(array, dtype)


def compute(out: Tensor) -> tuple[list[list[UOp]], np.ndarray]:
    """Returns the linear program of each kernel, and the values that they compute."""
    items = out.schedule()
    asts = [item.ast for item in items if item.ast.op is Ops.SINK]
    run_schedule(items)
    return [get_program(ast, Device[Device.DEFAULT].renderer).uops or [] for ast in asts], out.numpy()


def adds_up(program: list[UOp]) -> bool:
    """Whether it has an accumulator: a reduce is left in it."""
    return any(u.op is Ops.DEFINE_REG for u in program)


# *** gathers

X, M, CUBE = values(N), values(4, N), values(3, 4, N)
CUBE_INDEX = np.array([[1, 2], [0, 511]])
FLIPPED = Tensor.arange(N - 1, -1, -1)

GATHERS: dict[str, tuple[Program, np.ndarray]] = {
    "one index": (lambda: data(X)[index(PICKED)], X[PICKED]),
    "negative": (lambda: data(X)[index(PICKED - N)], X[PICKED]),
    "long index": (lambda: data(X)[index(PICKED, dtypes.long)], X[PICKED]),
    "byte index": (lambda: data(X)[index(PICKED % 256, dtypes.uint8)], X[PICKED % 256]),
    "computed index": (lambda: data(X)[index(PICKED) * 3 % N], X[PICKED * 3 % N]),
    "half": (lambda: data(X, dtypes.half)[index(PICKED)], X[PICKED]),
    "int8": (lambda: data(X, dtypes.int8)[index(PICKED)], X[PICKED]),
    "bool": (lambda: data(X > 0, dtypes.bool)[index(PICKED)], X[PICKED] > 0),
    "expression": (lambda: (data(X) * 2 + 1)[index(PICKED)], X[PICKED] * 2 + 1),
    "rows": (lambda: data(M.T)[index(PICKED)], M.T[PICKED]),
    "columns": (lambda: data(M)[:, index(PICKED)], M[:, PICKED]),
    "index of two axes": (lambda: data(X)[index(CUBE_INDEX)], X[CUBE_INDEX]),
    "two indices": (lambda: data(M)[index(ROW), index(PICKED)], M[ROW, PICKED]),
    "two indices of three axes": (lambda: data(CUBE)[:, index(ROW), index(PICKED)], CUBE[:, ROW, PICKED]),
    "two indices apart": (lambda: data(CUBE)[index(ROW) % 3, :, index(PICKED)], CUBE[ROW % 3, :, PICKED]),
    "three indices": (lambda: data(CUBE)[index(ROW) % 3, index(ROW), index(PICKED)], CUBE[ROW % 3, ROW, PICKED]),
    "broadcast indices": (lambda: data(M)[index(ROW).reshape(5, 1), index(PICKED)], M[ROW[:, None], PICKED]),
    "gather": (lambda: data(M).gather(1, index(np.stack([PICKED] * 4))), M[:, PICKED]),
    "gather rows": (lambda: data(M.T).gather(0, index(np.stack([PICKED] * 4, 1))), M.T[PICKED]),
    "one-hot": (lambda: (index(PICKED).one_hot(N) * data(X)).sum(-1), X[PICKED]),
    "one-hot of ints": (lambda: (index(PICKED).one_hot(N) * data(X, dtypes.int)).sum(-1), X[PICKED]),
    "one-hot of bools": (
        lambda: ((index(ROW) > 0).cast(dtypes.int).one_hot(N) * data(X)).sum(-1),
        X[(ROW > 0).astype(int)],
    ),
    "one-hot matmul": (lambda: index(PICKED).one_hot(N).float() @ data(M.T), M.T[PICKED]),
    "counted backwards": (
        lambda: (index(PICKED).reshape(5, 1) == FLIPPED).where(data(X), 0).sum(-1),
        X[N - 1 - PICKED],
    ),
    "counted from 5": (
        lambda: (Tensor.arange(5, 5 + N) == index(PICKED + 5).reshape(5, 1)).where(data(X), 0).sum(-1),
        X[PICKED],
    ),
    "out of bounds": (
        lambda: (Tensor.arange(N) == index(PICKED * 9 - 9).reshape(5, 1)).where(data(X), 0).sum(-1),
        np.array([X[18], 0, 0, 0, X[18]]),
    ),
    "mapped": (lambda: vmap(lambda m, i: m[i])(data(M), index(PICKED[:4])), M[np.arange(4), PICKED[:4]]),
    "mapped, shared": (lambda: vmap(lambda i: data(X)[i])(index(PICKED)), X[PICKED]),
}


@pytest.mark.parametrize("name", GATHERS)
def test_a_gather_is_one_kernel_of_loads(name: str) -> None:
    """It was a loop over all that it picks from, or two kernels with a buffer between them."""
    program, want = GATHERS[name]
    kernels, got = compute(program())
    assert [adds_up(kernel) for kernel in kernels] == [False]
    np.testing.assert_array_equal(got, want)


def test_an_embedding_is_one_kernel_of_loads() -> None:
    layer = Embedding(N, 8)
    layer.weight.realize()
    kernels, got = compute(layer(index(PICKED)))
    assert [adds_up(kernel) for kernel in kernels] == [False]
    np.testing.assert_array_equal(got, layer.weight.numpy()[PICKED])


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sparse": lambda x, labels: x.sparse_categorical_crossentropy(labels, reduction="none"),
    "cross_entropy": lambda x, labels: x.cross_entropy(labels, reduction="none"),
    "nll": lambda x, labels: x.log_softmax().nll_loss(labels, reduction="none"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_by_labels_reads_one_element_of_a_row(name: str) -> None:
    """Of the three reduces over the classes two are sums: the maximum, the sum of the exponentials."""
    logits = values(5, N) / 3
    out = LOSSES[name](data(logits), index(PICKED))
    whole = [u for u in out.uop.toposort() if u.op is Ops.REDUCE_AXIS and find_gathered(u, u.src[0])]
    assert len(whole) == 1
    want = np.log(np.exp(logits).sum(1)) - logits[ROWS, PICKED]
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-5)


def test_the_gradient_of_a_scatter_is_a_gather() -> None:
    source = data(values(5)).requires_grad_()
    (Tensor.zeros(N).contiguous().scatter_reduce(0, index(PICKED), source, "sum") * data(X)).sum().backward()
    assert source.grad is not None
    whole = [u for u in source.grad.uop.toposort() if u.op is Ops.REDUCE_AXIS and find_gathered(u, u.src[0])]
    assert len(whole) == 1
    np.testing.assert_array_equal(source.grad.numpy(), X[PICKED])


# *** what is none


def bytes_from_2() -> Tensor:
    return Tensor.arange(2, 2 + N).cast(dtypes.uint8)


OTHERS: dict[str, tuple[Program, np.ndarray]] = {
    "sum": (lambda: data(X).sum(), X.sum()),
    "sum of a part": (
        lambda: (Tensor.arange(N) < index(PICKED).reshape(5, 1)).where(data(X), 0).sum(-1),
        np.array([X[:i].sum() for i in PICKED]),
    ),
    "sum without one": (
        lambda: (Tensor.arange(N) != index(PICKED).reshape(5, 1)).where(data(X), 0).sum(-1),
        X.sum() - X[PICKED],
    ),
    "product": (lambda: (Tensor.arange(N) == index(PICKED).reshape(5, 1)).where(data(X), 1).prod(-1), X[PICKED]),
    "every second": (
        lambda: (Tensor.arange(N) // 2 == index(PICKED // 2).reshape(5, 1)).where(data(X), 0).sum(-1),
        X.reshape(-1, 2).sum(1)[PICKED // 2],
    ),
    "wraps around": (
        lambda: (bytes_from_2() == index(PICKED % 256, dtypes.uint8).reshape(5, 1)).where(1, 0).mul(data(X)).sum(-1),
        np.array([X[(i - 2) % 256] + X[(i - 2) % 256 + 256] for i in PICKED]),
    ),
    "by data": (
        lambda: (data(np.arange(N), dtypes.int) == index(PICKED).reshape(5, 1)).where(data(X), 0).sum(-1),
        X[PICKED],
    ),
    "scatter": (
        lambda: Tensor.zeros(5).contiguous().realize().scatter_reduce(0, index(np.arange(N) % 5), data(X), "sum"),
        np.array([X[i::5].sum() for i in range(5)]),
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_sum_is_split_as_by_stock(name: str) -> None:
    """A long sum in one kernel has too few threads on a GPU."""
    program, want = OTHERS[name]
    kernels, got = compute(program())
    assert len(kernels) == 2
    np.testing.assert_array_equal(got, want)


MANY = np.arange(N) * 7 % 40
CLASSES = values(N, 40)


def sum_of_gathered() -> Tensor:
    """A sum over rows and classes of a product with one-hot rows: a gather, and a sum over the rows."""
    return (data(CLASSES) * (index(MANY).reshape(N, 1) == Tensor.arange(40))).sum()


def test_an_index_that_depends_on_the_position_is_no_gather() -> None:
    """No single position is equal to its own index: the elements for which it is are added up."""
    indices, numbers = np.array([7, 1, 5, 0, 3, 2, 0, 0]), np.arange(1.0, 9.0)
    found = (index(indices) == Tensor.arange(8).flip(0)).where(data(numbers), 0).sum()
    assert found.item() == numbers[indices == np.arange(8)[::-1]].sum()


def test_a_sum_of_gathered_values_is_split_along_the_other_axes() -> None:
    kernels, got = compute(sum_of_gathered())
    assert len(kernels) == 2
    assert got == CLASSES[np.arange(N), MANY].sum()


class Listener(_state.Nobody):
    """Hears which reduces are not split, and the graph that they are in."""

    listens = True

    def __init__(self) -> None:
        self.left: list[tuple[UOp, Any]] = []
        self.graph: dict[UOp, None] = {}

    def split_left_out(self, reduce: UOp, whole: Any) -> None:
        self.left.append((reduce, whole))

    def pass_starts(self, tsink: UOp, context: Any, scope_ranges: Any) -> None:
        self.graph = tsink.toposort()


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Listener:
    listener = Listener()
    monkeypatch.setattr(_state, "observer", listener)
    return listener


# the program; axes, the others that are added up, and the shapes of the source and the result
REPORTED: dict[str, tuple[Program, tuple[tuple[int, ...], ...]]] = {
    "one index": (GATHERS["one index"][0], ((1,), (), (5, N), (5, 1))),
    "two indices": (GATHERS["two indices"][0], ((1, 2), (), (5, 4, N), (5, 1, 1))),
    "a part of a sum": (sum_of_gathered, ((1,), (0,), (N, 40), (1, 1))),
}


@pytest.mark.parametrize("name", REPORTED)
def test_an_unsplit_reduce_is_reported(name: str, listener: Listener) -> None:
    """`show` and `why` read it from there, with the node of the kernels."""
    program, expected = REPORTED[name]
    program().schedule()
    ((reduce, whole),) = listener.left
    assert reduce in listener.graph
    assert (whole.axes, whole.rest, whole.source, whole.result) == expected
    if not whole.rest:
        assert whole.between == (*whole.result, 256)
        assert reduce.src[0].shape == whole.source


def test_a_split_reduce_is_not_reported(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the patch, gathers are split, too."""
    OTHERS["sum"][0]().schedule()
    monkeypatch.setattr(_state, "patches", _state.patches - {"whole-gathers"})
    for name in ("one index", "two indices", "one-hot"):
        program, want = GATHERS[name]
        kernels, got = compute(program())
        assert len(kernels) == 2
        assert any(map(adds_up, kernels))
        np.testing.assert_array_equal(got, want)
    assert listener.left == []


def test_a_sparse_jacobian_has_two_kernels_at_any_size() -> None:
    """Its values are picked from the buffer of all passes; from 32,768 of them on that took thirty times as long."""
    n = N
    pattern = SparsityPattern((n, n), np.arange(n), np.arange(n))
    kernels, got = compute(sparse_jacobian(lambda x: x * x, data(np.arange(n)), pattern).values)
    assert [adds_up(kernel) for kernel in kernels] == [False, False]
    np.testing.assert_array_equal(got, 2 * np.arange(n))
