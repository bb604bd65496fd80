"""Has the tests of tinygrad's deciding functions keep what they see: an import hook that rewrites their syntax trees.

    if len(consumer_rngs) > 1:      becomes      if (p := None) or (t := len((p := consumer_rngs)) > 1):

Each part of a test is kept in a local variable of the function when the test itself evaluates it: nothing is evaluated
twice, no call is made, what the test means stays. What a rule returns goes through one call. Line numbers stay, and no
.pyc is written, so a tinygrad that is imported without this has nothing of it.
"""

from __future__ import annotations

import ast
from typing import Any

from vmapdbg.child.listen.deciding import Deciding, Function, describe, find_deciding, find_parts

RETURNED = "__vmapdbg_returned__"
# the kinds of functions all of whose answers are looked at
RULES = frozenset({"rule", "stores"})

# file -> (first line, name) of a function -> what is known of it
known: dict[str, dict[tuple[int, str], Deciding]] = {}


def instrument(source: str | bytes, filename: str) -> ast.Module:
    """Returns the tree of a module whose deciding functions keep what they see, and enters them in `known`."""
    tree = ast.parse(source, filename)
    deciding = find_deciding(tree)
    described = {function: describe(function, kind) for function, kind in deciding.items()}
    known[filename] = {(d.line, d.name): d for d in described.values()}
    for function, description in described.items():
        _Rewriter(description).rewrite(function)
        ast.fix_missing_locations(function)
    return tree


class _Rewriter(ast.NodeTransformer):
    def __init__(self, description: Deciding) -> None:
        self.description = description
        self.keeps_tests = description.kind != "makes"

    def rewrite(self, function: Function) -> None:
        if isinstance(function, ast.Lambda):
            if isinstance(function.body, ast.IfExp):
                function.body.test = self.keep(function.body.test)
            if self.description.kind in RULES:
                function.body = _returned(function.body, function.body)
            return
        function.body = [part for statement in function.body for part in [self.visit(statement)]]
        if self.description.kind in RULES and not isinstance(function.body[-1], (ast.Return, ast.Raise)):
            # what falls off the end of a rule leaves the buffer as it is
            last = ast.Constant(None, lineno=function.end_lineno or function.lineno, col_offset=0)
            function.body.append(ast.copy_location(ast.Return(_returned(last, last)), last))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        node.test = self.keep(node.test)
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        value = node.value or ast.copy_location(ast.Constant(None), node)
        if isinstance(value, ast.IfExp):
            value.test = self.keep(value.test)
        is_none = isinstance(value, ast.Constant) and value.value is None
        if self.description.kind in RULES or (self.description.kind == "makes" and not is_none):
            node.value = _returned(value, node)
        return node

    def keep(self, test: ast.expr) -> ast.expr:
        known_test = self.description.tests.get(test.lineno)
        if not self.keeps_tests or known_test is None:
            return test
        # a part may stand twice in a test: both write to the same variable
        wanted = {id(part): known_test.parts[ast.unparse(part)] for part in find_parts(test)}
        kept = ast.NamedExpr(ast.Name(known_test.outcome, ast.Store()), _KeepParts(wanted).visit(test))
        if not known_test.parts:
            return ast.copy_location(kept, test)
        # a part that this test does not come to must not have the value of the last time
        reset: ast.expr = ast.Constant(None)
        for name in dict.fromkeys(known_test.parts.values()):
            reset = ast.NamedExpr(ast.Name(name, ast.Store()), reset)
        return ast.copy_location(ast.BoolOp(ast.Or(), [reset, kept]), test)


class _KeepParts(ast.NodeTransformer):
    def __init__(self, wanted: dict[int, str]) -> None:
        self.wanted = wanted

    def visit(self, node: ast.AST) -> Any:
        name = self.wanted.get(id(node))
        if name is None:
            return self.generic_visit(node)
        assert isinstance(node, ast.expr)
        return ast.copy_location(ast.NamedExpr(ast.Name(name, ast.Store()), node), node)


def _returned(value: ast.expr, at: ast.AST) -> ast.expr:
    call = ast.Call(ast.Name(RETURNED, ast.Load()), [ast.Constant(getattr(at, "lineno", 0)), value], [])
    return ast.copy_location(call, value)
