"""Smaller programs by delta debugging on the syntax tree: statements deleted, a body in the place of its loop or
function, an operand in the place of its expression, arguments left out, integers made smaller. Runs nothing."""

import ast
import contextlib
import math
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

AskEach = Callable[[Sequence[str]], Sequence[bool]]  # tells of each program whether it shows the fault
_BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)
_SEEDS = frozenset({"seed", "manual_seed"})
_GENERATORS = frozenset({"default_rng", "RandomState"})
# lists that belong together: a comparison has as many operators as operands
_NOT_SHORTENED = (ast.Compare, ast.Dict, ast.arguments, ast.MatchClass)


def normalize(source: str) -> str:
    """Returns a program without comments, as Python writes it. Raises SyntaxError or ValueError."""
    return ast.unparse(ast.parse(source)) + "\n"


def shrink(source: str, ask: AskEach, width: int, seconds: float) -> Iterator[str]:
    """Yields ever smaller programs that show the fault, until time is over or none is left. Asks `width` at once."""
    end = time.monotonic() + seconds
    refused = {source}
    limit = math.inf
    while True:
        cuts = ((gain, text) for gain, text in list_smaller(source, limit) if text not in refused)
        found = None
        while found is None and (batch := list(islice(cuts, width))):
            if time.monotonic() > end:
                return
            answers = list(zip(batch, ask([text for _, text in batch]), strict=True))
            found = next((cut for cut, shows in answers if shows), None)
            refused.update(text for (_, text), shows in answers if not shows)
        if found is not None:
            # larger cuts were refused a moment ago: they come again at the end
            limit, source = found
            yield source
        elif limit == math.inf:
            return
        else:
            limit = math.inf


def list_smaller(source: str, limit: float = math.inf) -> Iterator[tuple[float, str]]:
    """Yields cuts, biggest first: the size (at most `limit`), and the program without it and what reads its names."""
    tree = ast.parse(source)
    unknown = _Names(tree).read - _Names(tree).bound
    seeds, is_random = _find_seeds(tree), _draws_without_seed(tree)
    seen = {source, "\n"}
    for cut in sorted(_list_cuts(tree), key=lambda cut: -cut.gain):
        if cut.gain > limit:
            continue
        with contextlib.suppress(SyntaxError, ValueError, AttributeError):
            with cut.made():
                made = ast.parse(ast.unparse(tree))
            _repair(made, unknown)
            # each run of it would have other values
            if not seeds <= _find_seeds(made) or (_draws_without_seed(made) and not is_random):
                continue
            text = normalize(ast.unparse(made))
            with warnings.catch_warnings(action="error", category=SyntaxWarning):
                compile(text, "smaller", "exec")
            if text not in seen:
                seen.add(text)
                yield cut.gain, text


def _find_seeds(tree: ast.AST) -> set[str]:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
    return {func.attr for func in calls if isinstance(func, ast.Attribute)} & _SEEDS


def _draws_without_seed(tree: ast.AST) -> bool:
    """Whether a program calls `np.random.standard_normal()` or the like, or makes a generator without a seed."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="random"), attr=name), args=given):
                if name not in _SEEDS and not (name in _GENERATORS and given):
                    return True
            case _:
                pass
    return False


# *** cuts


@dataclass(frozen=True)
class _Place:
    """A field of a node, or with an `index` an entry of that field, which is a list."""

    node: ast.AST
    field: str
    index: int | None = None

    @property
    def value(self) -> Any:
        held = getattr(self.node, self.field)
        return held if self.index is None else held[self.index]

    def put(self, value: object) -> None:
        if self.index is None:
            setattr(self.node, self.field, value)
        else:
            getattr(self.node, self.field)[self.index] = value


@dataclass(frozen=True)
class _Cut:
    """A change of the tree: each place gets `value`. `gain` counts removed nodes; below 1: a number becomes smaller."""

    places: tuple[_Place, ...]
    value: object
    gain: float

    @contextlib.contextmanager
    def made(self) -> Generator[None]:
        """Changes the tree for the time of the block."""
        before = [place.value for place in self.places]
        for place in self.places:
            place.put(self.value)
        try:
            yield
        finally:
            for place, value in zip(self.places, before, strict=True):
                place.put(value)


def _list_cuts(tree: ast.AST) -> Iterator[_Cut]:
    numbers: defaultdict[int, list[_Place]] = defaultdict(list)
    names: defaultdict[str, list[_Place]] = defaultdict(list)
    imported = {name for node in ast.walk(tree) if isinstance(node, ast.alias) for name in _Names(node).bound}
    for place in _list_places(tree):
        value = place.value
        if isinstance(value, list):
            yield from _shorten(place)
        elif isinstance(value, ast.expr):
            # Python refuses most programs without a part, but an argument, a bound or a result may be optional
            yield _Cut((place,), None, _count(value))
            yield from _simplify(place, value, imported)
            if isinstance(value, ast.Constant) and type(value.value) is int:
                numbers[value.value].append(place)
            elif isinstance(value, ast.Name):
                names[value.id].append(place)
        elif isinstance(value, ast.stmt):
            yield from _unwrap(place, value)
    for number, places in numbers.items():
        together = [tuple(places)] if len(places) > 1 else []
        for chosen in [*together, *((place,) for place in places)]:
            for smaller in sorted({1, 2, 3, number // 2, number - max(1, number // 4)}):
                if 0 < smaller < number:
                    yield _Cut(chosen, ast.Constant(smaller), 1 - smaller / number)
    for places in names.values():
        yield from _replace_name(places)


def _list_places(tree: ast.AST) -> Iterator[_Place]:
    for node in ast.walk(tree):
        for field in node._fields:
            yield _Place(node, field)
            yield from (_Place(node, field, index) for index in range(len(_entries_of(node, field))))


def _entries_of(node: ast.AST, field: str) -> list[Any]:
    """Returns the list in a field of a node, an empty list if the field has none."""
    value: Any = getattr(node, field, None)
    return cast("list[Any]", value) if isinstance(value, list) else []


def _count(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_count, cast("list[Any]", value)))
    return sum(1 for _ in ast.walk(value))


def _shorten(place: _Place) -> Iterator[_Cut]:
    """Yields a list without all entries, without one half, without one quarter, ... without one."""
    entries = place.value
    if isinstance(place.node, _NOT_SHORTENED) or not all(isinstance(entry, ast.AST) for entry in entries):
        return
    length = len(entries)
    while length:
        for start in range(0, len(entries), length):
            left = entries[:start] + entries[start + length :]
            if not left and place.field == "body" and not isinstance(place.node, ast.Module):
                left = [ast.Pass()]
            gain = _count(entries) - _count(left)
            # a Tensor without elements shows little
            if gain > 0 and (left or place.field != "elts"):
                yield _Cut((place,), left, gain)
        length //= 2


def _simplify(place: _Place, value: ast.expr, imported: set[str]) -> Iterator[_Cut]:
    """Yields an operand, an argument, or another part in the place of an expression, but no module or class."""
    if not isinstance(getattr(value, "ctx", ast.Load()), ast.Load):
        return
    parts = [part for part in ast.iter_child_nodes(value) if isinstance(part, ast.expr | ast.keyword)]
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        # x.f(y) becomes x, not the method x.f
        parts[0] = value.func.value
    for part in parts:
        inner = part.value if isinstance(part, ast.keyword) else part
        is_called = isinstance(value, ast.Call) and inner is value.func
        is_import = isinstance(inner, ast.Name) and inner.id in imported
        does_nothing = isinstance(place.node, ast.Expr) and isinstance(inner, ast.Name | ast.Constant)
        if not (is_called or is_import or does_nothing or isinstance(inner, ast.Slice | ast.FormattedValue)):
            yield _Cut((place,), inner, _count(value) - _count(inner))


def _unwrap(place: _Place, statement: ast.stmt) -> Iterator[_Cut]:
    """Yields the body in the place of a statement that has one."""
    body: Any = getattr(statement, "body", None)
    if body is not None and place.index is not None:
        block = _Place(place.node, place.field)
        spread = [*block.value[: place.index], *body, *block.value[place.index + 1 :]]
        yield _Cut((block,), spread, _count(statement) - _count(body))


def _replace_name(places: Sequence[_Place]) -> Iterator[_Cut]:
    """Yields the value of a name in the place of each read, if the name is assigned once, to a name or a constant."""
    # the assignment itself stays, and can be deleted afterwards
    stored = [place for place in places if not isinstance(place.value.ctx, ast.Load)]
    if len(stored) != 1 or not isinstance(stored[0].node, ast.Assign):
        return
    value = stored[0].node.value
    reads = tuple(place for place in places if place not in stored)
    if reads and isinstance(value, ast.Name | ast.Constant):
        yield _Cut(reads, value, 0.9)


# *** names


class _Names:
    """The names that a tree binds anywhere, and the names that it reads."""

    def __init__(self, tree: ast.AST) -> None:
        self.bound: set[str] = set()
        self.read: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                (self.read if isinstance(node.ctx, ast.Load) else self.bound).add(node.id)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.bound.add(node.name)
            elif isinstance(node, ast.arg):
                self.bound.add(node.arg)
            elif isinstance(node, ast.alias):
                self.bound.add(node.asname or node.name.partition(".")[0])
            elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
                self.bound.add(node.name)


def _repair(tree: ast.Module, unknown: set[str]) -> None:
    """Deletes statements that read a name that nothing binds (not if in `unknown`), then imports that nothing reads."""
    names = _Names(tree)
    while "*" not in names.bound and (missing := names.read - names.bound - unknown):
        _delete(tree, lambda statement, missing=missing: bool(_read_by(statement) & missing))
        before, names = names, _Names(tree)
        if names.read == before.read:
            return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            node.names = [alias for alias in node.names if _Names(alias).bound & {*names.read, "*"}]
    _delete(tree, lambda statement: isinstance(statement, ast.Import | ast.ImportFrom) and not statement.names)


def _read_by(statement: ast.stmt) -> set[str]:
    """Returns the names that a statement reads itself. What the statements in its body read does not count."""
    parts = [part for part in ast.iter_child_nodes(statement) if not isinstance(part, _BLOCKS)]
    return set[str]().union(*(_Names(part).read for part in parts))


def _delete(node: ast.AST, is_unwanted: Callable[[ast.stmt], bool]) -> None:
    """Deletes statements. A statement that has a body is deleted, too, if its body becomes empty."""
    for field in node._fields:
        parts = _entries_of(node, field)
        for part in parts:
            if isinstance(part, _BLOCKS):
                _delete(part, is_unwanted)
        kept = [part for part in parts if not (isinstance(part, ast.stmt) and is_unwanted(part))]
        parts[:] = [part for part in kept if getattr(part, "body", None) != []]
