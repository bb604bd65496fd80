"""Colourings are valid and small; `sparse_jacobian` is the dense one, in every format, from stages called apart."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import Refusals, check_refusal, each_refusal
from scopes import numbers
from tinygrad import Tensor, TinyJit, dtypes
from tinygrad.func import Coloring, SparsityPattern, color, jacobian_sparsity, sparse_jacobian, vmap
from tinygrad.helpers import GlobalCounters

F64 = np.float64


def vector(n: int, seed: int = 0) -> Tensor:
    return Tensor(numbers(n, dtype=F64, seed=seed)).realize()


def make_pattern(dense: np.ndarray) -> SparsityPattern:
    return SparsityPattern(dense.shape, *np.nonzero(dense))


def couple(x: Tensor) -> Tensor:
    """(n,) -> (n-1,): each element with the next, and with the last."""
    return x[1:] * x[:-1].sin() + x[-1] ** 2


def couple_jacobian(x: np.ndarray) -> np.ndarray:
    n = len(x)
    ret = np.zeros((n - 1, n))
    rows = np.arange(n - 1)
    ret[rows, rows] += x[1:] * np.cos(x[:-1])
    ret[rows, rows + 1] += np.sin(x[:-1])
    ret[:, -1] += 2 * x[-1]
    return ret


# *** color


@given(st.integers(0, 12), st.integers(0, 12), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_no_two_of_one_colour_meet(m: int, n: int, density: float, seed: int) -> None:
    """Two columns of one colour that share a row are added to each other."""
    dense = np.random.default_rng(seed).random((m, n)) < density
    for partition, matrix in (("column", dense), ("row", dense.T)):
        coloring = color(make_pattern(dense), partition)
        assert coloring.colors.shape == (matrix.shape[1],)
        fullest = int(matrix.sum(axis=1).max(initial=0))
        assert fullest <= coloring.count <= max(1, matrix.shape[1])
        for c in range(coloring.count):
            members = coloring.colors == c
            assert members.any()
            assert matrix[:, members].sum(axis=1).max(initial=0) <= 1


@pytest.mark.parametrize(
    ("dense", "columns", "rows"),
    [
        (np.eye(50), 1, 1),
        (np.eye(50) + np.eye(50, k=1) + np.eye(50, k=-1), 3, 3),
        (np.abs(np.subtract.outer(np.arange(60), np.arange(60))) <= 4, 9, 9),
        (np.eye(40) + (np.arange(40) == 0), 2, 40),  # an arrow: one full column
        (np.eye(40) + (np.arange(40) == 0)[:, None], 40, 2),
        (np.kron(np.eye(10), np.ones((3, 5))), 5, 3),
        (np.ones((4, 7)), 7, 4),
        (np.zeros((4, 7)), 1, 1),
    ],
    ids=["diagonal", "tridiagonal", "band", "full column", "full row", "blocks", "dense", "empty"],
)
def test_count_of_known_matrices(dense: np.ndarray, columns: int, rows: int) -> None:
    """Each colour more is one pass more."""
    pattern = make_pattern(dense)
    assert (color(pattern).count, color(pattern, "row").count) == (columns, rows)


def color_by_sets(dense: np.ndarray) -> list[int]:
    """Greedy, largest first, one row after the other: what `color` does, with nothing done at once."""
    full = dense.sum(axis=1)
    order = np.argsort(-(dense * np.maximum(full - 1, 0)[:, None]).sum(axis=0), kind="stable")
    colors = [-1] * dense.shape[1]
    for j in order.tolist():
        used = {colors[k] for i in np.nonzero(dense[:, j])[0] for k in np.nonzero(dense[i])[0]}
        colors[j] = next(c for c in range(len(colors) + 1) if c not in used)
    return colors


@pytest.mark.parametrize("partition", ["column", "row"])
@pytest.mark.parametrize(
    ("m", "n", "density"), [(90, 70, 0.9), (150, 100, 0.5), (200, 60, 0.2), (60, 80, 0.05), (0, 3, 0)]
)
def test_colours_of_equal_rows(m: int, n: int, density: float, partition: str) -> None:
    """The tool examines equal rows only once. The colours must still equal the colours of the plain rule."""
    dense = np.random.default_rng(m).random((m, n)) < density
    dense[m // 2 :] = dense[: m - m // 2]
    matrix = dense if partition == "column" else dense.T
    assert color(make_pattern(dense), partition).colors.tolist() == color_by_sets(matrix)


# *** sparse_jacobian


@pytest.mark.parametrize("partition", ["column", "row"])
def test_formats(partition: str) -> None:
    x = vector(7)
    pattern = jacobian_sparsity(couple, x)
    coloring = color(pattern, partition)
    want = couple_jacobian(x.numpy())
    coo, csr, dense = (sparse_jacobian(couple, x, pattern, coloring, f) for f in ("coo", "csr", "dense"))
    assert coo.values.dtype == csr.values.dtype == dense.dtype == dtypes.float64
    np.testing.assert_allclose(dense.numpy(), want, rtol=1e-12)
    np.testing.assert_allclose(coo.values.numpy(), want[coo.rows, coo.cols], rtol=1e-12)
    for i in range(6):
        row = slice(csr.indptr[i], csr.indptr[i + 1])
        assert csr.indices[row].tolist() == np.nonzero(want[i])[0].tolist()
        np.testing.assert_allclose(csr.values.numpy()[row], want[i, csr.indices[row]], rtol=1e-12)
    scipy_sparse = pytest.importorskip("scipy.sparse")
    assert isinstance(coo.toscipy(), scipy_sparse.coo_array)
    assert isinstance(csr.toscipy(), scipy_sparse.csr_array)
    for matrix in (coo, csr):
        np.testing.assert_allclose(matrix.toscipy().todense(), want, rtol=1e-12)
    np.testing.assert_array_equal(pattern.toscipy().todense(), want != 0)


def test_shapes_of_input_and_result() -> None:
    """x and the result have any shape, and are counted flat; the result may be several Tensors."""
    x = Tensor(numbers(2, 3, dtype=F64)).realize()
    got = sparse_jacobian(lambda v: (v.T * 2, v.sum()), x, format="dense").numpy()
    want = np.concatenate([2 * np.eye(6).reshape(2, 3, 6).transpose(1, 0, 2).reshape(6, 6), np.ones((1, 6))])
    np.testing.assert_array_equal(got, want)
    scalar = Tensor(3.0, dtype=dtypes.float64)
    np.testing.assert_array_equal(sparse_jacobian(lambda v: v * v, scalar, format="dense").numpy(), [[6.0]])


def test_nothing_to_compute() -> None:
    for fn in (lambda v: v.detach(), lambda v: Tensor([1.0, 2.0, 3.0]), lambda v: v > 0):
        ret = sparse_jacobian(fn, vector(3))
        assert (ret.shape, ret.values.shape, ret.values.tolist()) == ((3, 3), (0,), [])
        assert (sparse_jacobian(fn, vector(3), format="dense").numpy() == 0).all()


def test_no_element_of_the_dense_matrix_is_computed() -> None:
    """What is computed and moved grows with the nonzeros: with n, not with n*n."""
    work = []
    for n in (1000, 4000):
        x = vector(n)
        pattern = jacobian_sparsity(couple, x)
        ret = sparse_jacobian(couple, x, pattern).values
        ret.realize()
        GlobalCounters.reset()
        sparse_jacobian(couple, x, pattern).values.realize()
        assert GlobalCounters.kernel_count == 2
        work.append((GlobalCounters.global_ops, GlobalCounters.global_mem))
    assert work[1][0] / work[0][0] < 4.5
    assert work[1][1] / work[0][1] < 4.5


@pytest.mark.parametrize("partition", ["column", "row"])
def test_jit_reuses_the_stages(partition: str) -> None:
    """The numbers of the first call come out of each replay, or the pattern is copied to the device each time."""
    pattern = jacobian_sparsity(couple, vector(6))
    coloring = color(pattern, partition)
    jitted = TinyJit(lambda x: sparse_jacobian(couple, x, pattern, coloring).values.realize())
    for seed in range(4):
        x = vector(6, seed)
        np.testing.assert_allclose(
            jitted(x).numpy(), couple_jacobian(x.numpy())[pattern.rows, pattern.cols], rtol=1e-12
        )
    assert jitted.captured is not None
    assert len(jitted.captured.jit_cache) == 2


def test_values_can_be_differentiated_and_mapped() -> None:
    x = vector(5).contiguous()
    pattern = jacobian_sparsity(lambda v: v**3, x)
    values = sparse_jacobian(lambda v: v**3, x, pattern).values
    np.testing.assert_allclose(values.sum().gradient(x)[0].numpy(), 6 * x.numpy(), rtol=1e-12)
    batch = Tensor(numbers(3, 6, dtype=F64)).realize()
    pattern = jacobian_sparsity(couple, vector(6))
    got = vmap(lambda v: sparse_jacobian(couple, v, pattern).values)(batch).numpy()
    want = [couple_jacobian(row)[pattern.rows, pattern.cols] for row in batch.numpy()]
    np.testing.assert_allclose(got, want, rtol=1e-12)


# *** errors: one sentence that says what was given and what fits

X, EYE = vector(4), make_pattern(np.eye(4))


SHIFTED = make_pattern(np.eye(4) + np.eye(4, k=2))


def refuse(fn: Any = lambda x: x * x, x: Tensor = X, pattern: Any = EYE, **options: Any) -> None:
    sparse_jacobian(fn, x, pattern, **options)


REFUSALS: Refusals = {
    TypeError: {
        "pattern is of type ndarray, not a SparsityPattern": lambda: refuse(pattern=np.eye(4)),
        "coloring is of type list, not what color(pattern) returns": lambda: refuse(coloring=[0, 0, 0, 0]),
        "only floats have a derivative": lambda: refuse(x=Tensor([1, 2, 3, 4])),
        "not a Tensor": lambda: refuse(lambda x: ["text"]),
    },
    ValueError: {
        'format is "coo", "csr" or "dense", not \'bsr\'': lambda: refuse(format="bsr"),
        "has shape (3, 3), but the Jacobian of this function and x has (4, 4)": lambda: refuse(
            pattern=make_pattern(np.eye(3))
        ),
        "has 3 columns, but the pattern of shape (4, 4) has 4": lambda: refuse(coloring=Coloring("column", [0, 0, 0])),
        "has 5 rows, but the pattern of shape (4, 4) has 4": lambda: refuse(coloring=Coloring("row", [0] * 5)),
        "columns 0 and 2 have the same colour, and both have a nonzero in row 0": lambda: refuse(
            pattern=SHIFTED, coloring=Coloring("column", [0] * 4)
        ),
    },
}


@each_refusal(REFUSALS)
def test_what_it_cannot_take(error: type[Exception], sentence: str, call: Any) -> None:
    check_refusal(error, sentence, call)


def test_bad_colourings() -> None:
    with pytest.raises(ValueError, match='partition is "column" or "row", not \'col\''):
        color(EYE, "col")
    for colors in ([[0]], [0.5], [-1]):
        with pytest.raises(ValueError, match="1D array of integers from 0"):
            Coloring("row", colors)


@pytest.mark.parametrize("package", ["numpy", "scipy"])
def test_missing_packages_are_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """tinygrad needs neither; who has them not gets a sentence that says what to install."""
    lazy, stock_import = importlib.import_module("tinygrad_overlay._func.index_sets"), importlib.import_module

    def refuse(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == package:
            raise ImportError(name)
        return stock_import(name, *rest)

    monkeypatch.setattr(importlib, "import_module", refuse)
    use = EYE.toscipy if package == "scipy" else lambda: lazy.LazyNumpy().zeros
    with pytest.raises(ImportError, match=f"{package}, which is not installed: pip install {package}"):
        use()
