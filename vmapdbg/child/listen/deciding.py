"""Which functions of tinygrad's scheduler decide, and under which tests each of their statements stands.

Chosen by what a function does, read off the source, so that a renamed or a new one is found too:

- it *realizes*: it writes to a realize map (an attribute or a name that ends in `realize_map`, or the context of a rule
  in a module that has a realize map);
- it is *a rule about buffers*: it stands in a PatternMatcher whose pattern names the buffer op (BUFFERIZE, STAGE), or
  the rule's lambda calls it;
- it *stores buffers*: such a rule that calls `.store(...)`;
- it *makes buffers* later: any other rule that calls `.bufferize(...)`. It runs for every node, so only what it returns
  is looked at, not its tests.

Nothing here imports tinygrad.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

STAGE_OPS = frozenset({"BUFFERIZE", "STAGE"})
# names whose attributes are constants: they say nothing about the case
CONSTANT_BASES = frozenset({"Ops", "GroupOp", "dtypes", "AddrSpace", "AxisType"})
Function = ast.FunctionDef | ast.Lambda


@dataclass(frozen=True)
class Test:
    """A test of a deciding function: `parts` maps the text of each part to the local variable that keeps its value."""

    line: int
    text: str
    parts: dict[str, str]
    outcome: str
    in_loop: bool


@dataclass
class Deciding:
    """A deciding function: its tests by line, and for each line of a statement the tests it stands under, with
    whether they must hold."""

    name: str
    kind: str
    line: int
    tests: dict[int, Test] = field(default_factory=dict)
    paths: dict[int, tuple[tuple[int, bool], ...]] = field(default_factory=dict)
    loop_lines: set[int] = field(default_factory=set)


def find_deciding(tree: ast.Module) -> dict[Function, str]:
    """Returns the deciding functions and lambdas of a module: "realizes", "rule", "stores" or "makes"."""
    functions = {n.name: n for n in list_functions(tree) if isinstance(n, ast.FunctionDef)}
    named = {name: {n.attr for n in ast.walk(f) if isinstance(n, ast.Attribute)} for name, f in functions.items()}
    found: dict[Function, str] = {}
    has_map = any("realize_map" in attributes for attributes in named.values())
    for function in functions.values():
        if has_map and _writes_realize_map(function):
            found[function] = "realizes"
    kinds = {name: "stores" if "store" in attributes else "rule" for name, attributes in named.items()}
    for pattern, action in find_rules(tree):
        called = [functions[name] for name in _called_names(action) if name in functions]
        if has_map and isinstance(action, ast.Lambda) and (_writes_realize_map(action) or set(called) & set(found)):
            found[action] = "realizes"
        elif names_stage(pattern):
            for function in called:
                found.setdefault(function, kinds[function.name])
            if isinstance(action, ast.Lambda) and not _only_calls(action, called):
                found[action] = "rule"
        else:
            for function in called:
                if "bufferize" in named[function.name]:
                    found.setdefault(function, "makes")
    return found


def list_functions(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yields the statements of a module and of its classes."""
    for statement in tree.body:
        yield statement
        if isinstance(statement, ast.ClassDef):
            yield from statement.body


def find_rules(tree: ast.Module) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yields (pattern, action) of each rule of each PatternMatcher of a module."""
    outside = [n for n in tree.body if not isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom))]
    for call in (node for statement in outside for node in ast.walk(statement)):
        match call:
            case ast.Call(ast.Name("PatternMatcher"), [ast.List(rules) | ast.Tuple(rules), *_]):
                for rule in rules:
                    if isinstance(rule, ast.Tuple) and len(rule.elts) == 2:
                        yield rule.elts[0], rule.elts[1]


def names_stage(pattern: ast.AST) -> bool:
    """Whether a pattern matches the buffer op; `GroupOp.All-{Ops.STAGE}` does not."""
    if isinstance(pattern, ast.Attribute) and pattern.attr in STAGE_OPS:
        return True
    inside = ast.iter_child_nodes(pattern)
    if isinstance(pattern, ast.BinOp) and isinstance(pattern.op, ast.Sub):
        inside = iter([pattern.left])
    return any(names_stage(child) for child in inside)


def _called_names(action: ast.expr) -> list[str]:
    if isinstance(action, ast.Name):
        return [action.id]
    return [n.func.id for n in ast.walk(action) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]


def _only_calls(action: ast.Lambda, called: list[ast.FunctionDef]) -> bool:
    body = action.body
    return isinstance(body, ast.Call) and isinstance(body.func, ast.Name) and body.func.id in {f.name for f in called}


def _writes_realize_map(function: Function) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and _is_map(node.value):
            return True
        if isinstance(node, ast.Call) and _updates_map(node.func):
            return True
    return False


def _updates_map(called: ast.expr) -> bool:
    return isinstance(called, ast.Attribute) and called.attr == "update" and _is_map(called.value)


def _is_map(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr.endswith("realize_map")
    return isinstance(node, ast.Name) and (node.id.endswith("realize_map") or node.id == "ctx")


# *** the tests of a function, and the tests that each of its statements stands under


def describe(function: Function, kind: str) -> Deciding:
    """Returns what is known of a deciding function before it runs."""
    if isinstance(function, ast.Lambda):
        described = Deciding("<lambda>", kind, function.lineno)
        _walk_lambda(described, function)
        return described
    first = min([function.lineno, *(d.lineno for d in function.decorator_list)])
    described = Deciding(function.name, kind, first)
    _walk(described, function.body, (), in_loop=False)
    return described


Path = tuple[tuple[int, bool], ...]
_LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)


def _walk(described: Deciding, body: list[ast.stmt], path: Path, in_loop: bool) -> None:
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            continue
        last = statement.lineno
        # of one that has others in it, its first line is its own
        if not isinstance(statement, (ast.If, ast.For, ast.While, ast.With)):
            last = statement.end_lineno or last
        for line in range(statement.lineno, last + 1):
            described.paths[line] = path
            if in_loop:
                described.loop_lines.add(line)
        if isinstance(statement, ast.If):
            path = _walk_if(described, statement, path, in_loop)
        elif isinstance(statement, (ast.For, ast.While)):
            _walk(described, statement.body, path, in_loop=True)
        elif isinstance(statement, ast.With):
            _walk(described, statement.body, path, in_loop)
        elif isinstance(statement, ast.Return) and isinstance(statement.value, ast.IfExp):
            add_test(described, statement.value.test, in_loop)


def _walk_if(described: Deciding, statement: ast.If, path: Path, in_loop: bool) -> Path:
    """Returns the tests that what follows the `if` stands under."""
    line = statement.test.lineno
    add_test(described, statement.test, in_loop)
    _walk(described, statement.body, (*path, (line, True)), in_loop)
    _walk(described, statement.orelse, (*path, (line, False)), in_loop)
    if statement.body[0].lineno == statement.lineno:
        # `if test: decides` on one line: what decides on this line is in the body
        described.paths[statement.lineno] = (*path, (line, True))
    if isinstance(statement.body[-1], _LEAVES):
        return (*path, (line, False))
    return path


def _walk_lambda(described: Deciding, function: ast.Lambda) -> None:
    path: Path = ()
    if isinstance(function.body, ast.IfExp):
        add_test(described, function.body.test, in_loop=False)
        path = ((function.body.test.lineno, True),)
    for line in range(function.lineno, (function.end_lineno or function.lineno) + 1):
        described.paths[line] = path


def add_test(described: Deciding, test: ast.expr, in_loop: bool) -> None:
    line = test.lineno
    parts = {ast.unparse(part): f"_vmapdbg_{line}_{i}" for i, part in enumerate(find_parts(test))}
    described.tests[line] = Test(line, ast.unparse(test), parts, f"_vmapdbg_{line}", in_loop)


def find_parts(test: ast.expr) -> list[ast.expr]:
    """Returns the parts of a test whose value says something and costs nothing: names, attributes and subscripts.

    None inside a comprehension or a lambda (its names are not the function's), and none with a call in it.
    """
    own = {n.id for n in ast.walk(test) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    found: list[ast.expr] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, (ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp, ast.Lambda)):
            return
        if isinstance(node, (ast.Attribute, ast.Subscript, ast.Name)) and _is_part(node, own):
            found.append(node)
            return
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Call):
            # what is called is no value
            children = [*node.args, *(keyword.value for keyword in node.keywords)]
            if isinstance(node.func, ast.Attribute):
                # what a method belongs to is one
                children.insert(0, node.func.value)
        for child in children:
            visit(child)

    visit(test)
    return found


def _is_part(node: ast.Attribute | ast.Subscript | ast.Name, own: set[str]) -> bool:
    inside = list(ast.walk(node))
    if any(isinstance(n, (ast.Call, ast.NamedExpr, ast.GeneratorExp)) for n in inside):
        return False
    if not isinstance(node.ctx, ast.Load):
        return False
    return not {n.id for n in inside if isinstance(n, ast.Name)} & (own | CONSTANT_BASES)
