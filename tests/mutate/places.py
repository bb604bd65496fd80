"""The places of a source where one small change makes a mutant, and the edits of the text."""

from __future__ import annotations

import ast
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

# an operator -> the operator that takes its place, as they are written
_OPERATORS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
# a statement that can be left out without an undefined name
_STATEMENTS = (ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete)
# these arguments only guard against faults: without them a right program does the same
_GUARDS = {"strict", "exist_ok", "flush"}


@dataclass(frozen=True)
class Edit:
    """Bytes `start` to `end` of a file become `text`."""

    start: int
    end: int
    text: bytes

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text + source[self.end :]


@dataclass(frozen=True)
class Place:
    """One place and its change. `node` is the first and the last byte of its expression or statement, `scope` the
    first line of its function, `shown` the change in words."""

    file: str
    line: int
    scope: int
    kind: str
    edit: Edit
    node: tuple[int, int]
    is_statement: bool
    shown: str

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} {self.kind} {self.edit.start}"


class _Source:
    """A source, and the bytes of its nodes."""

    def __init__(self, source: bytes) -> None:
        self.bytes = source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, span: tuple[int, int]) -> bytes:
        return self.bytes[slice(*span)]

    def operator(self, left: ast.expr, right: ast.expr, kind: object) -> Edit:
        """Returns the change of the operator between two operands."""
        old, new = _OPERATORS[type(kind)]
        begin = self.span(left)[1]
        # of the same length: a comment between the operands may name the operator
        between = re.sub(rb"#[^\n]*", lambda found: b" " * len(found[0]), self.bytes[begin : self.span(right)[0]])
        word = rb"\s+".join(re.escape(part) for part in old.encode().split())
        found = re.search(rb"\b%b\b" % word if old[0].isalpha() else word, between)
        assert found is not None, (old, between)
        return Edit(begin + found.start(), begin + found.end(), new.encode())


def find_places(file: str, source: bytes) -> list[Place]:
    """Returns all places in the functions of a source, in their order. What runs at import, annotations, docstrings,
    messages in f-strings, assertions and patterns of `match` are no places."""
    read = _Source(source)
    found: list[Place] = []
    for node, scope in _walk(ast.parse(source), 0):
        for kind, edit in _edits_of(read, node):
            start, end = span = read.span(node)
            shown = _show(read.text(span), Edit(edit.start - start, edit.end - start, edit.text))
            found.append(Place(file, node.lineno, scope, kind, edit, (start, end), isinstance(node, ast.stmt), shown))
    return found


def _show(text: bytes, edit: Edit) -> str:
    """Returns the text of a node before and after an edit, both short and in one line."""
    # long text is cut in front of the edit and behind it
    start, end = max(0, edit.start - 30), edit.end + 30
    pair = text[start:end], text[start : edit.start] + edit.text + text[edit.end : end]
    before, after = (" ".join(part.decode(errors="replace").split()) for part in pair)
    return f"{before} -> {after}"


def _walk(node: ast.AST, scope: int) -> Iterator[tuple[ast.expr | ast.stmt, int]]:
    """Yields the nodes in functions that may be changed, each with the first line of its function."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        # neither decorators nor defaults: they run at import
        for child in node.body:
            yield from _walk(child, node.lineno)
        return
    if isinstance(node, (ast.Assert, ast.JoinedStr, ast.pattern)) or _is_for_types(node):
        return
    if scope and isinstance(node, (ast.expr, ast.stmt)):
        yield node, scope
    for name, value in ast.iter_fields(node):
        if name == "annotation" or (name == "arg" and isinstance(node, ast.keyword) and node.arg in _GUARDS):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.keyword) and child.arg in _GUARDS:
                continue
            if isinstance(child, ast.AST):
                yield from _walk(child, scope)


def _is_for_types(node: ast.AST) -> bool:
    """Whether only a type checker reads a node."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "cast"


def _edits_of(read: _Source, node: ast.expr | ast.stmt) -> Iterator[tuple[str, Edit]]:
    """Yields the changes of a node, each with its kind."""
    match node:
        case ast.Compare():
            for kind, (left, right) in zip(node.ops, pairwise([node.left, *node.comparators]), strict=True):
                yield "compare", read.operator(left, right, kind)
        case ast.BoolOp():
            for left, right in pairwise(node.values):
                yield "and-or", read.operator(left, right, node.op)
        case ast.BinOp() if type(node.op) in _OPERATORS and not _has_text(node):
            yield "arithmetic", read.operator(node.left, node.right, node.op)
        case ast.Constant():
            text = {"0": b"1", "1": b"0", "True": b"False", "False": b"True"}.get(repr(node.value))
            if text is not None:
                yield "constant", Edit(*read.span(node), text)
        case ast.UnaryOp(op=ast.Not()):
            start = read.span(node)[0]
            yield "not", Edit(start, start + len("not"), b"")
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            yield "call", Edit(*read.span(node.func), _CALLS[name].encode())
        case ast.IfExp():
            body, test, other = map(read.text, map(read.span, (node.body, node.test, node.orelse)))
            yield "swapped", Edit(*read.span(node), b"(%b) if not (%b) else (%b)" % (body, test, other))
        case _ if isinstance(node, _STATEMENTS) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            yield "dropped", Edit(*read.span(node), b"pass")
        case _:
            pass


def _has_text(node: ast.BinOp) -> bool:
    """Whether an operand is a text, which has no other operator: such a mutant fails at once."""
    sides = (node.left, node.right)
    return any(isinstance(side, ast.JoinedStr) or isinstance(getattr(side, "value", 0), str) for side in sides)


def choose_places(places: Sequence[Place], count: int, seed: int) -> list[Place]:
    """Returns `count` places at random: the folders in turn, in each the kinds in turn, and one place a function."""
    draw = random.Random(seed)
    folders: dict[str, list[Place]] = defaultdict(list)
    for place in places:
        folders[str(Path(place.file).parent)].append(place)
    queues = [_mix(folders[name], draw) for name in sorted(folders)]
    draw.shuffle(queues)
    chosen: dict[tuple[str, int], Place] = {}
    while queues and len(chosen) < count:
        queue = queues.pop(0)
        place = next((place for place in queue if (place.file, place.scope) not in chosen), None)
        if place is not None:
            chosen[place.file, place.scope] = place
            queues.append(queue)
    return sorted(chosen.values(), key=lambda place: (place.file, place.line))


def _mix(places: Sequence[Place], draw: random.Random) -> Iterator[Place]:
    """Yields the places in a random order, the kinds in turn."""
    kinds: dict[str, list[Place]] = defaultdict(list)
    for place in draw.sample(places, len(places)):
        kinds[place.kind].append(place)
    order = list(kinds.values())
    draw.shuffle(order)
    while any(order):
        yield from [kind.pop() for kind in order if kind]


def add_reports(source: bytes, places: Sequence[tuple[int, Place]]) -> bytes:
    """Returns a source that does the same and reports each numbered place that it reaches."""
    edits: list[Edit] = []
    for number, place in places:
        start, end = place.node
        report = b'__import__("vmapdbg").reach_place(%d)' % number
        if place.is_statement:
            edits.append(Edit(start, start, report + b"; "))
        else:
            edits += [Edit(start, start, b"(" + report + b", ("), Edit(end, end, b"))[1]")]
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        source = edit.apply(source)
    return source


REPORT = '''

def reach_place(number, known=set()):
    """Notes once for each test that a place was reached."""
    import os

    test = os.environ.get({test!r}, "")
    if (number, test) not in known:
        known.add((number, test))
        with open(os.path.join({folder!r}, f"{{os.getpid()}}.txt"), "a", encoding="utf-8") as file:
            file.write(f"{{number}}\\t{{test}}\\n")
'''
"""Goes at the end of `vmapdbg/__init__.py`, which each process of the tool imports. The plugin names the test in the
environment, which child processes have too."""
