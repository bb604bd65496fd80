"""The rewritten functions do what they did, on the same lines, and keep what their tests saw. No tinygrad needed."""

from __future__ import annotations

import ast
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from vmapdbg.child.listen.decisions import (
    RETURNED,
    PartKeeper,
    find_deciding,
    instrument,
    read_decision,
    rewrite_function,
)

SOURCE = """
def realize(ctx, tr): ctx[tr] = None
def walk(rctx, nodes, limit):
  for x in nodes:
    if x.hidden or len(x.users) == 0: continue
    if len(x.users) > limit: rctx.realize_map[x.name] = list(x.users)
    elif x.forced and x.why.text:
      rctx.realize_map[x.name] = None
def drop(b):
  if b.size > 3: return None
  if not b.removable:
    return
  hit = b.size > 1
  if hit: return "narrowed"
def limit(ctx, root):
  if root.size > 8: return root.bufferize()
def other(x):
  if x: return 1
pm = PatternMatcher([
  (UPat(Ops.SINK, name="s"), lambda ctx,s: ctx.update((x, None) for x in s)),
  (UPat(Ops.STAGE, name="b"), drop),
  (UPat(Ops.STAGE, name="b"), lambda b: 1 if b.size else None),
  (UPat(GroupOp.All-{Ops.STAGE}, name="x"), lambda x: x if x.size else None),
  (UPat(GroupOp.ALU, name="root"), limit),
])
"""


def load(name: str, answers: list[Any] | None = None) -> dict[str, Any]:
    def returned(line: int, answer: Any) -> Any:
        if answers is not None:
            answers.append((read_decision(sys._getframe(1), line), answer))
        return answer

    missing = dict.fromkeys(("UPat", "Ops", "GroupOp"), MagicMock())
    scope: dict[str, Any] = {RETURNED: returned, "PatternMatcher": list, **missing}
    tree = instrument(SOURCE, name)
    assert tree is not None
    exec(compile(tree, name, "exec"), scope)
    return scope


def test_deciding_functions_are_chosen_by_what_they_do() -> None:
    found = find_deciding(ast.parse(SOURCE))
    kinds = [(getattr(f, "name", "<lambda>"), kind) for f, kind in found.items()]
    assert kinds == [
        ("realize", "realizes"),
        ("walk", "realizes"),
        ("<lambda>", "realizes"),
        ("drop", "rule"),
        ("<lambda>", "rule"),
        ("limit", "makes"),
    ]


def test_a_rewritten_function_keeps_the_values_of_its_tests() -> None:
    scope = load("kept.py")
    seen = []

    class Map(dict[Any, Any]):
        def __setitem__(self, key: Any, value: Any) -> None:
            frame = sys._getframe(1)
            seen.append((key, read_decision(frame, frame.f_lineno)))
            super().__setitem__(key, value)

    context = SimpleNamespace(realize_map=Map())
    nodes = [
        SimpleNamespace(name="a", hidden=True),
        SimpleNamespace(name="b", hidden=False, users=[1, 2, 3]),
        SimpleNamespace(name="c", hidden=False, users=[1], forced=True, why=SimpleNamespace(text="because")),
        SimpleNamespace(name="d", hidden=False, users=[1], forced=False),
    ]
    scope["walk"](context, nodes, 2)
    assert context.realize_map == {"b": [1, 2, 3], "c": None}
    (_, first), (_, second) = seen
    assert [(d.file, d.line, d.function) for d in (first, second)] == [("kept.py", 6, "walk"), ("kept.py", 8, "walk")]
    assert [(c.line, c.holds) for c in first.conditions] == [(5, False), (6, True)]
    assert first.conditions[1].values == {"x.users": [1, 2, 3], "limit": 2}
    assert [(c.line, c.holds) for c in second.conditions] == [(5, False), (6, False), (7, True)]
    assert second.find_value("x.why.text") == "because"


def test_a_part_that_was_not_evaluated_has_no_value() -> None:
    """`hidden` ends the test: the users of the node before must not count as this node's users."""
    scope = load("part.py")
    held = []

    class Users(list[int]):
        def __len__(self) -> int:
            frame = sys._getframe(1)
            held.append({k: v for k, v in frame.f_locals.items() if k.startswith("_vmapdbg")})
            return 0

    shown = SimpleNamespace(name="a", hidden=0, users=Users())
    scope["walk"](SimpleNamespace(realize_map={}), [shown, SimpleNamespace(name="b", hidden=1), shown], 2)
    assert [values["_vmapdbg_5_0"] for values in held] == [0, 0]
    assert all(values["_vmapdbg_5_1"] is shown.users for values in held)


@pytest.mark.parametrize(
    ("thing", "answer", "line", "holds"),
    [
        (SimpleNamespace(size=5, removable=True), None, 10, [True]),
        (SimpleNamespace(size=2, removable=False), None, 12, [False, True]),
        (SimpleNamespace(size=2, removable=True), "narrowed", 14, [False, False, True]),
        (SimpleNamespace(size=1, removable=True), None, 14, [False, False, False]),
    ],
)
def test_each_answer_of_a_rule_is_seen(thing: SimpleNamespace, answer: Any, line: int, holds: list[bool]) -> None:
    answers: list[Any] = []
    assert load("answers.py", answers)["drop"](thing) == answer
    ((decision, said),) = answers
    assert (said, decision.line, [c.holds for c in decision.conditions]) == (answer, line, holds)


def test_makers_are_looked_at_only_where_they_make_something() -> None:
    answers: list[Any] = []
    scope = load("makers.py", answers)
    assert scope["limit"](None, SimpleNamespace(size=2)) is None
    assert answers == []
    assert scope["limit"](None, SimpleNamespace(size=9, bufferize=lambda: "made")) == "made"
    assert [said for _, said in answers] == ["made"]


NEXT = """
def graph(nodes, users):
  found = {}
  for x in nodes:
    if users[x] > 1 and x.device is not None:
      found[x] = x.tagged(1).bufferize(arg=users)
  return found
def on_store(ctx, x):
  if x.shape == (): return None
  return x.store(1).end(2)
pm = PatternMatcher([(UPat(Ops.STORE, name="x"), on_store)])
"""


def test_functions_of_an_unknown_scheduler_are_chosen_by_the_memory_they_make(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler without a realize map has reasons, too: where it places a buffer, and what was tested there."""
    monkeypatch.setitem(globals(), "SOURCE", NEXT)
    assert [kind for _, kind in find_deciding(ast.parse(NEXT)).items()] == ["returns", "places"]
    answers: list[Any] = []
    scope = load("next.py", answers)
    thing: Any = MagicMock()
    thing.tagged().bufferize.return_value = "stage"
    assert scope["graph"]([thing], {thing: 2}) == {thing: "stage"}
    assert scope["on_store"](None, SimpleNamespace(shape=())) is None
    (placed, made), (refused, none) = answers
    assert (made, placed.function, placed.line, none) == ("stage", "graph", 6, None)
    assert [c.holds for c in placed.conditions] == [True]
    assert placed.conditions[0].values["users[x]"] == 2
    assert [(c.text, c.holds) for c in refused.conditions] == [("x.shape == ()", True)]


def test_a_module_without_a_decision_is_loaded_as_it_is() -> None:
    assert instrument(b"x = 1", "plain.py") is None


def test_lines_stay() -> None:
    """A traceback of tinygrad names the lines of its own source."""
    plain, rewritten = ast.parse(SOURCE), instrument(SOURCE, "lines.py")
    assert rewritten is not None
    names = [n for n in ast.walk(plain) if isinstance(n, ast.Name)]
    places = {(n.id, n.lineno) for n in ast.walk(rewritten) if isinstance(n, ast.Name)}
    assert {(n.id, n.lineno) for n in names} <= places
    with pytest.raises(AttributeError) as raised:
        load("lines.py")["drop"](SimpleNamespace())
    assert raised.traceback[-1].lineno == 9


@pytest.mark.parametrize(
    ("test", "parts"),
    [
        ("x.op is Ops.SINK and y", ["x.op", "y"]),
        ("len(x.src[0].src) > n", ["x.src[0].src", "n"]),
        ("any(s.op for s in x.src)", []),
        ("x.key() == (z := y)", ["x", "y"]),
        ("f(lambda a: a.b)(x)", ["x"]),
    ],
)
def test_parts_make_no_calls(test: str, parts: list[str]) -> None:
    expression = ast.parse(test, mode="eval").body
    keeper = PartKeeper(expression)
    keeper.visit(expression)
    assert list(keeper.names) == parts


def test_paths_know_what_left_the_block_before() -> None:
    function = next(f for f in find_deciding(ast.parse(SOURCE)) if getattr(f, "name", "") == "drop")
    described = rewrite_function(function, "rule")
    assert described.paths[13] == ((10, False), (11, False))
    assert described.paths[12] == ((10, False), (11, True))
