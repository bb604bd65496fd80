"""Has the tests of tinygrad's deciding functions keep what they see: an import hook rewrites their syntax trees.

    if len(consumer_rngs) > 1:      becomes      if (p := None) or (t := len((p := consumer_rngs)) > 1):

A test keeps each of its parts in a local variable of the function when it evaluates the part: nothing is evaluated
twice, nothing is called, and the test means the same. The answer of a rule goes through one call. Line numbers stay,
and no .pyc is written, so a tinygrad that is imported without this is as before.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from vmapdbg.child.listen.deciding import Function, Kind, find_deciding

RETURNED = "__vmapdbg_returned__"
# the kinds of functions that report all of their answers
RULES: frozenset[Kind] = frozenset({"rule", "stores"})
# names whose attributes are constants: they say nothing about the case
_CONSTANT_BASES = frozenset({"Ops", "GroupOp", "dtypes", "AddrSpace", "AxisType"})
_LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)
# the line of each test before a statement, and whether the test must hold
Path = tuple[tuple[int, bool], ...]


@dataclass(frozen=True)
class Test:
    """A test of a deciding function: `parts` maps the text of each part to the local variable that keeps its value."""

    line: int
    text: str
    parts: dict[str, str]
    in_loop: bool

    @property
    def outcome(self) -> str:
        """The local variable that keeps the outcome."""
        return f"_vmapdbg_{self.line}"


@dataclass
class Deciding:
    """A deciding function: its tests by line, the path to each line of a statement, and the lines in loops."""

    name: str
    kind: Kind
    line: int
    tests: dict[int, Test] = field(default_factory=dict)
    paths: dict[int, Path] = field(default_factory=dict)
    loop_lines: set[int] = field(default_factory=set)


# file -> (first line, name) of a function -> the function
known: dict[str, dict[tuple[int, str], Deciding]] = {}


def instrument(source: str | bytes, filename: str) -> ast.Module:
    """Returns the tree of a module whose deciding functions keep what they see, and enters them in `known`."""
    tree = ast.parse(source, filename)
    rewritten = [rewrite_function(function, kind) for function, kind in find_deciding(tree).items()]
    known[filename] = {(function.line, function.name): function for function in rewritten}
    return ast.fix_missing_locations(tree)


def rewrite_function(function: Function, kind: Kind) -> Deciding:
    """Rewrites a deciding function. Returns what is known of it before it runs."""
    if isinstance(function, ast.Lambda):
        rewriter = _Rewriter(Deciding("<lambda>", kind, function.lineno))
        rewriter.rewrite_lambda(function)
    else:
        first = min([function.lineno, *(d.lineno for d in function.decorator_list)])
        rewriter = _Rewriter(Deciding(function.name, kind, first))
        rewriter.walk(function.body, (), in_loop=False)
        if kind in RULES and not isinstance(function.body[-1], (ast.Return, ast.Raise)):
            # a rule without an answer leaves the buffer as it is
            last = ast.Constant(None, lineno=function.end_lineno or function.lineno, col_offset=0)
            function.body.append(ast.copy_location(ast.Return(_returned(last, last)), last))
    return rewriter.deciding


class _Rewriter:
    def __init__(self, deciding: Deciding) -> None:
        self.deciding = deciding

    def rewrite_lambda(self, function: ast.Lambda) -> None:
        path: Path = ()
        if isinstance(function.body, ast.IfExp):
            path = ((function.body.test.lineno, True),)
            function.body.test = self._keep(function.body.test, in_loop=False)
        if self.deciding.kind in RULES:
            function.body = _returned(function.body, function.body)
        lines = range(function.lineno, (function.end_lineno or function.lineno) + 1)
        self.deciding.paths = dict.fromkeys(lines, path)

    def walk(self, body: list[ast.stmt], path: Path, in_loop: bool) -> None:
        """Rewrites the statements of a block; `path` are the tests before it."""
        for statement in body:
            if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                continue
            blocks = _list_blocks(statement)
            # the lines of blocks are not the statement's
            last = statement.lineno if blocks else statement.end_lineno or statement.lineno
            lines = range(statement.lineno, last + 1)
            self.deciding.paths |= dict.fromkeys(lines, path)
            if in_loop:
                self.deciding.loop_lines.update(lines)
            if isinstance(statement, ast.If):
                path = self._walk_if(statement, path, in_loop)
                continue
            if isinstance(statement, ast.Return):
                self._rewrite_return(statement, in_loop)
            for block in blocks:
                self.walk(block, path, in_loop or isinstance(statement, (ast.For, ast.While)))

    def _walk_if(self, statement: ast.If, path: Path, in_loop: bool) -> Path:
        """Returns the path to the statement after the `if`."""
        line = statement.test.lineno
        statement.test = self._keep(statement.test, in_loop)
        self.walk(statement.body, (*path, (line, True)), in_loop)
        self.walk(statement.orelse, (*path, (line, False)), in_loop)
        if statement.body[0].lineno == statement.lineno:
            # `if test: decides` on one line: what decides on this line is in the body
            self.deciding.paths[statement.lineno] = (*path, (line, True))
        if isinstance(statement.body[-1], _LEAVES):
            return (*path, (line, False))
        return path

    def _rewrite_return(self, statement: ast.Return, in_loop: bool) -> None:
        value = statement.value or ast.copy_location(ast.Constant(None), statement)
        if isinstance(value, ast.IfExp):
            value.test = self._keep(value.test, in_loop)
        is_none = isinstance(value, ast.Constant) and value.value is None
        if self.deciding.kind in RULES or (self.deciding.kind == "makes" and not is_none):
            statement.value = _returned(value, statement)

    def _keep(self, test: ast.expr, in_loop: bool) -> ast.expr:
        """Returns a test that keeps its parts and its outcome."""
        # a part may be in a test twice: both write to the same variable
        parts = {part: ast.unparse(part) for part in find_parts(test)}
        names = {text: f"_vmapdbg_{test.lineno}_{i}" for i, text in enumerate(parts.values())}
        kept = self.deciding.tests[test.lineno] = Test(test.lineno, ast.unparse(test), names, in_loop)
        if self.deciding.kind == "makes":
            # it runs for every node
            return test
        wanted = {id(part): names[text] for part, text in parts.items()}
        outcome = ast.NamedExpr(ast.Name(kept.outcome, ast.Store()), _PartKeeper(wanted).visit(test))
        if not names:
            return ast.copy_location(outcome, test)
        # a part that this test does not evaluate must not have the value of the last time
        reset: ast.expr = ast.Constant(None)
        for name in dict.fromkeys(names.values()):
            reset = ast.NamedExpr(ast.Name(name, ast.Store()), reset)
        return ast.copy_location(ast.BoolOp(ast.Or(), [reset, outcome]), test)


class _PartKeeper(ast.NodeTransformer):
    """Puts nodes of a test, by their ids, into local variables."""

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


def _list_blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """Returns the blocks of a statement: the body of a loop, what a `try` does, and so on."""
    blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    blocks += [handler.body for handler in getattr(statement, "handlers", ())]
    return [block for block in blocks if block]


def find_parts(test: ast.expr) -> list[ast.expr]:
    """Returns the parts of a test whose value says something and costs nothing: names, attributes and subscripts.

    None inside a comprehension or a lambda (its names are not the function's), and none with a call in it.
    """
    stored = {n.id for n in ast.walk(test) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    found: list[ast.expr] = []
    todo: list[ast.AST] = [test]
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp, ast.Lambda)):
            continue
        if isinstance(node, (ast.Attribute, ast.Subscript, ast.Name)) and _is_part(node, stored):
            found.append(node)
            continue
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Call):
            # a function that is called is no value, but the object of a method is one
            objects = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            children = [*objects, *node.args, *(keyword.value for keyword in node.keywords)]
        todo += reversed(children)
    return found


def _is_part(node: ast.Attribute | ast.Subscript | ast.Name, stored: set[str]) -> bool:
    nodes = list(ast.walk(node))
    if any(isinstance(n, (ast.Call, ast.NamedExpr, ast.GeneratorExp)) for n in nodes):
        return False
    if not isinstance(node.ctx, ast.Load):
        return False
    return not {n.id for n in nodes if isinstance(n, ast.Name)} & (stored | _CONSTANT_BASES)
