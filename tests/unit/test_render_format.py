"""Short strings for numbers, ids and places: a wrong one misleads in every section."""

import pytest
from captures import SNIPPET, make_capture, make_kernel, make_schedule

from vmapdbg.page.format import Places, format_bytes, format_count, format_dims, format_ids, format_shape


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1 MiB"),
        (40_960, "40 KiB"),
        (3 * 1024**3, "3 GiB"),
        (2**70, "1048576 PiB"),
    ],
)
def test_bytes_are_readable_and_round_to_the_next_unit(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (999_999_999, "999,999,999"), (10**9, "1.00 G"), (2_500_000_000_000, "2.50 T")]
)
def test_counts_are_exact_below_a_billion(count: int, text: str) -> None:
    assert format_count(count) == text


@pytest.mark.parametrize(
    ("ids", "text"),
    [([], ""), ([5], "5"), ([6, 5], "5, 6"), ([9, 7, 8, 5, 7], "5, 7-9"), ([1, 2, 4, 5, 6], "1, 2, 4-6")],
)
def test_ids_are_sorted_and_runs_joined(ids: list[int], text: str) -> None:
    assert format_ids(ids) == text


def test_shapes_and_dims_tell_nothing_from_scalar() -> None:
    assert [format_shape(shape) for shape in (None, (), (3,), (3, "n"))] == ["", "()", "(3,)", "(3, n)"]
    assert [format_dims(dims) for dims in (None, (), (32, "n"))] == ["-", "-", "32xn"]


def test_a_place_is_short_and_without_a_number_stays_whole() -> None:
    lines = (f"{SNIPPET}:9", "<stdin>:2", "C:\\x.py", "/only/dir")
    places = Places.of(make_capture(make_schedule(kernels=(make_kernel("k", lines=lines),))))
    assert places.format(f"{SNIPPET}:9") == "lost_range.py:9"
    assert places.format(f"{SNIPPET}:9", brief=True) == ":9"
    assert places.format("<stdin>:2") == "<stdin>:2"
    assert places.format("C:\\x.py") == "C:\\x.py"
    assert places.format(None) == ""
