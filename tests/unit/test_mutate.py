"""`python -m tests.mutate`: which places it changes, what the change is, and which tests it runs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutate.places import Place, add_reports, choose_places, find_places
from tests.mutate.runs import Note, name_killer, order_tests, split

ROOT = Path(__file__).parent.parent.parent
FILES = ("page/why.py", "reference/arithmetic.py", "child/evidence/loop_packer.py")


def change(body: str) -> list[str]:
    """Returns the mutants of the body of a function."""
    source = f"def f(x, y):\n  {body}\n".encode()
    return [place.edit.apply(source).decode().split("\n", 1)[1].strip() for place in find_places("f.py", source)]


@pytest.mark.parametrize(
    ("body", "mutants"),
    [
        ("return x < y <= x", ["return x <= y <= x", "return x < y < x"]),
        ("return (x) is  not y", ["return (x) is y"]),
        ("return x not in (  # not in: never\n  y)", ["return x in (  # not in: never\n  y)"]),
        ("return 'é' + x or y", ["return 'é' + x and y"]),
        ("return (x + y) * x", ["return (x + y) // x", "return (x - y) * x"]),
        ("return not (x and y)", ["return  (x and y)", "return not (x or y)"]),
        ("return x if y else (x, y)", ["return (x) if not (y) else ((x, y))"]),
        ("return min(x, 1)", ["return max(x, 1)", "return min(x, 0)"]),
        ("x.close()", ["pass"]),
        ("raise x", ["pass"]),
    ],
)
def test_a_mutant_has_one_change(body: str, mutants: list[str]) -> None:
    assert change(body) == mutants


@pytest.mark.parametrize(
    "body",
    [
        '"""1 + 1"""',
        "y: list[0] = x",
        "return f'{x + 1}'",
        "assert x == 1",
        "return cast(x < y, y)",
        "zip(x, strict=True).run",
        "if TYPE_CHECKING: x = 1",
    ],
)
def test_what_makes_no_difference_is_not_changed(body: str) -> None:
    assert change(body) == []


def test_what_runs_at_import_is_not_changed() -> None:
    assert find_places("f.py", b"LIMIT = 1\n@cache(1)\ndef f(x=1): pass\nclass C:\n  size: int = 1\n") == []


@pytest.mark.parametrize("name", FILES)
def test_mutants_of_the_tool_are_python_and_differ(name: str) -> None:
    source = (ROOT / "vmapdbg" / name).read_bytes()
    places = choose_places(find_places(name, source), 8, seed=1)
    assert len(places) == 8
    tree = ast.dump(ast.parse(source))
    for place in places:
        mutant = place.edit.apply(source)
        assert ast.dump(ast.parse(mutant)) != tree
        assert mutant.count(b"\n") == source.count(b"\n"), "the lines after a place keep their numbers"
    reporting = add_reports(source, list(enumerate(places)))
    assert [f"reach_place({number})" in reporting.decode() for number in range(9)] == [True] * 8 + [False]
    ast.parse(reporting)


def test_a_source_with_reports_does_the_same_and_says_what_it_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    source = b"def f(x):\n  if x > 2 and x < 9:\n    x += 1\n  return not x\n"
    places = find_places("f.py", source)
    names: dict[str, object] = {}
    exec(add_reports(source, [(n, p) for n, p in enumerate(places) if p.kind in ("dropped", "not")]), names)
    reached: list[int] = []
    monkeypatch.setattr("vmapdbg.reach_place", reached.append, raising=False)
    assert [names["f"](x) for x in (1, 3)] == [False, False]  # type: ignore[operator]
    kinds = [[place.kind for place in places][number] for number in reached]
    assert kinds == ["not", "dropped", "not"]


def test_each_folder_has_a_place_and_each_function_one() -> None:
    source = b"def f(x):\n  return x + 1 < 0\ndef g(x):\n  return x or 1\n"
    every = [place for folder in "abc" for place in find_places(f"{folder}/m.py", source)]
    chosen = choose_places(every, 4, seed=3)
    assert {place.file for place in chosen} == {"a/m.py", "b/m.py", "c/m.py"}
    assert chosen == choose_places(every, 4, seed=3)
    assert len({(place.file, place.scope) for place in chosen}) == 4
    assert len(choose_places(every, 60, seed=3)) == 6, "there are no more functions"


def note(seconds: float, outcome: str = "passed", *shared: str) -> Note:
    return {"seconds": seconds, "outcome": outcome, "shared": list(shared)}


def test_the_quickest_test_that_reaches_a_place_runs_first() -> None:
    notes = {
        "t.py::slow": note(9),
        "t.py::quick": note(1),
        "t.py::broken": note(0, "failed"),
        "t.py::other": note(0),
        "u.py::asks": note(0, "passed", "sample"),
        "v.py::first": note(2, "passed", "sample"),
        "w.py::sets_up": note(3),
        "w.py::beside": note(0),
    }
    reports = ["t.py::slow (call)", "t.py::quick (call)", "t.py::broken (call)", "v.py::first (call)", ""]
    order = ["t.py::quick", "v.py::first", "t.py::slow", "u.py::asks"]
    assert order_tests(notes, reports) == order
    assert order_tests(notes, ["w.py::sets_up (setup)"]) == ["w.py::sets_up", "w.py::beside"]
    assert list(split(order, notes, 400)) == [order[:2], order[2:]]
    assert list(split(order, notes, 10)) == [order[:2]], "only so many seconds"


def test_the_test_that_failed_is_named() -> None:
    notes = {"t.py::test_a[x - y]": note(1), "t.py::test_b[x - y]": note(1, "failed")}
    assert name_killer(1, notes) == "t.py::test_b[x - y]"
    assert name_killer(0, {}) is None
    assert name_killer(5, {}) is None, "no test was found"
    assert name_killer(None, {}) == "it did not end"
    assert name_killer(4, {}) == "pytest ended with 4"


def test_a_place_says_its_change() -> None:
    place: Place = find_places("f.py", b"def f(x):\n  return x(0) \\\n    + y\n")[0]
    assert (place.line, place.shown) == (2, "x(0) \\ + y -> x(0) \\ - y")
