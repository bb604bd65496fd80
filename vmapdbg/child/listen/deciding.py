"""Which functions of tinygrad's scheduler decide.

Chosen by what a function does in the source, so that a renamed or a new function is found, too:

- it *realizes*: it writes to a realize map (an attribute or a name that ends in `realize_map`, or the context of a rule
  in a module with a realize map);
- it is *a rule* about buffers: a pattern of a PatternMatcher names the buffer op (BUFFERIZE, STAGE), and its action is
  the function or calls it;
- it *stores* buffers: such a rule that calls `.store(...)`;
- it *makes* buffers later: any other rule that calls `.bufferize(...)`. It runs for every node, so only its answers are
  looked at, not its tests.

Nothing here imports tinygrad.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Literal

from vmapdbg.model.ops import STAGE_OPS

Function = ast.FunctionDef | ast.Lambda
Kind = Literal["realizes", "rule", "stores", "makes"]


def find_deciding(tree: ast.Module) -> dict[Function, Kind]:
    """Returns the deciding functions and lambdas of a module."""
    statements = [s for top in tree.body for s in (top, *(top.body if isinstance(top, ast.ClassDef) else ()))]
    functions = {s.name: s for s in statements if isinstance(s, ast.FunctionDef)}
    attributes = {name: {n.attr for n in ast.walk(f) if isinstance(n, ast.Attribute)} for name, f in functions.items()}
    has_map = any("realize_map" in names for names in attributes.values())
    found: dict[Function, Kind] = {}
    for function in functions.values():
        if has_map and _writes_realize_map(function):
            found[function] = "realizes"
    for pattern, action in _list_rules(tree):
        called = [functions[name] for name in _called_names(action) if name in functions]
        if has_map and isinstance(action, ast.Lambda) and (_writes_realize_map(action) or set(called) & set(found)):
            found[action] = "realizes"
        elif _names_stage(pattern):
            for function in called:
                found.setdefault(function, "stores" if "store" in attributes[function.name] else "rule")
            if isinstance(action, ast.Lambda) and not _only_calls(action, called):
                found[action] = "rule"
        else:
            for function in called:
                if "bufferize" in attributes[function.name]:
                    found.setdefault(function, "makes")
    return found


def _list_rules(tree: ast.Module) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yields (pattern, action) of each rule of each PatternMatcher of a module."""
    outside = [n for n in tree.body if not isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom))]
    for call in (node for statement in outside for node in ast.walk(statement)):
        match call:
            case ast.Call(ast.Name("PatternMatcher"), [ast.List(rules) | ast.Tuple(rules), *_]):
                for rule in rules:
                    if isinstance(rule, ast.Tuple) and len(rule.elts) == 2:
                        yield rule.elts[0], rule.elts[1]


def _names_stage(pattern: ast.AST) -> bool:
    """Whether a pattern matches the buffer op; `GroupOp.All-{Ops.STAGE}` does not."""
    if isinstance(pattern, ast.Attribute) and pattern.attr in STAGE_OPS:
        return True
    children = ast.iter_child_nodes(pattern)
    if isinstance(pattern, ast.BinOp) and isinstance(pattern.op, ast.Sub):
        children = iter([pattern.left])
    return any(map(_names_stage, children))


def _called_names(action: ast.expr) -> list[str]:
    if isinstance(action, ast.Name):
        return [action.id]
    return [n.func.id for n in ast.walk(action) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]


def _only_calls(action: ast.Lambda, called: list[ast.FunctionDef]) -> bool:
    body = action.body
    return isinstance(body, ast.Call) and isinstance(body.func, ast.Name) and body.func.id in {f.name for f in called}


def _writes_realize_map(function: Function) -> bool:
    for node in ast.walk(function):
        match node:
            case ast.Subscript(written, ctx=ast.Store()) | ast.Call(ast.Attribute(written, "update")):
                if _is_map(written):
                    return True
    return False


def _is_map(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr.endswith("realize_map")
    return isinstance(node, ast.Name) and (node.id.endswith("realize_map") or node.id == "ctx")
