"""Which functions of tinygrad's scheduler decide, and by what tests. An import hook rewrites their syntax trees so that
the tests keep what they see, and a decision is read off the frame of its function.

    if len(consumer_rngs) > 1:      becomes      if (p := None) or (t := len((p := consumer_rngs)) > 1):

A test keeps its parts in local variables as it evaluates them: nothing is evaluated twice or called, its meaning and
its line stay. A rule's answer goes through one call. No .pyc is written, so other imports of tinygrad are as before."""

import ast
import functools
import linecache
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, is_dataclass
from types import FrameType
from typing import Any, Literal

from vmapdbg.child.listen.records import OVERLAY, DecisionRecord, UOp
from vmapdbg.install.overlay import OVERLAY_PACKAGE, overlay_dir
from vmapdbg.model.capture import Condition
from vmapdbg.model.ops import STAGE_OPS

RETURNED = "__vmapdbg_returned__"
Function = ast.FunctionDef | ast.Lambda
Kind = Literal["realizes", "rule", "stores", "makes", "places", "returns"]
RULES: frozenset[Kind] = frozenset({"rule", "stores", "returns"})  # they report all of their answers
_MAKES_MEMORY = frozenset({"bufferize", "store", "after", "contiguous"})
_CONSTANT_BASES = frozenset({"Ops", "GroupOp", "dtypes", "AddrSpace", "AxisType"})  # their attributes are constants
_LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)
_PLAIN = (bool, int, float, str, bytes, tuple, list, dict, set, frozenset, type(None))
Path = tuple[tuple[int, bool], ...]  # the line of each test before a statement, and whether the test must hold


# *** which functions decide


def find_deciding(tree: ast.Module) -> dict[Function, Kind]:
    """Returns the deciding functions and lambdas of a module. They are chosen by what they do, also if renamed:

    - it *realizes*: it writes to a realize map (an attribute or a name that ends in `realize_map`, or the context of a
      rule in a module with a realize map);
    - it is *a rule* about buffers: a pattern of a PatternMatcher names the buffer op (BUFFERIZE, STAGE), and its action
      is the function or calls it;
    - it *stores* buffers: such a rule that calls `.store(...)`;
    - it *makes* buffers later: any other rule with `.bufferize(...)`. It runs for every node, so only answers count;
    - it *places* buffers: any other function that calls `.bufferize(...)`;
    - it *returns* memory: any other rule with `.store()`, `.after()` or `.contiguous()`, if its answer decides."""
    statements = [s for top in tree.body for s in (top, *(top.body if isinstance(top, ast.ClassDef) else ()))]
    functions = {s.name: s for s in statements if isinstance(s, ast.FunctionDef)}
    attributes = {name: {n.attr for n in ast.walk(f) if isinstance(n, ast.Attribute)} for name, f in functions.items()}
    has_map = any("realize_map" in names for names in attributes.values())
    realizing = [function for function in functions.values() if has_map and _writes_realize_map(function)]
    found: dict[Function, Kind] = dict.fromkeys(realizing, "realizes")
    for pattern, action in _list_rules(tree):
        calls = [n.func for n in ast.walk(action) if isinstance(n, ast.Call)]
        names = [name.id for name in [action, *calls] if isinstance(name, ast.Name)]
        called = [functions[name] for name in names if name in functions]
        if has_map and isinstance(action, ast.Lambda) and (_writes_realize_map(action) or set(called) & set(found)):
            found[action] = "realizes"
            continue
        is_about_buffers = _names_stage(pattern)
        for function in called:
            kind = _kind_of_rule(attributes[function.name], is_about_buffers)
            if kind is not None:
                found.setdefault(function, kind)
        match action:
            case ast.Lambda(body=ast.Call(ast.Name(name))) if name in functions:
                pass  # it only calls the function, which is the rule
            case ast.Lambda() if is_about_buffers:
                found[action] = "rule"
    for name, function in functions.items():
        if "bufferize" in attributes[name]:
            found.setdefault(function, "places")
    return found


def _kind_of_rule(attributes: set[str], is_about_buffers: bool) -> Kind | None:
    if is_about_buffers:
        return "stores" if "store" in attributes else "rule"
    if "bufferize" in attributes:
        return "makes"
    return "returns" if _MAKES_MEMORY & attributes else None


def _list_rules(tree: ast.Module) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yields (pattern, action) of each rule of each PatternMatcher of a module."""
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
            continue
        for call in ast.walk(statement):
            match call:
                case ast.Call(ast.Name("PatternMatcher"), [ast.List(rules) | ast.Tuple(rules), *_]):
                    for rule in rules:
                        if isinstance(rule, ast.Tuple) and len(rule.elts) == 2:
                            yield rule.elts[0], rule.elts[1]


def _names_stage(pattern: ast.AST) -> bool:
    """Whether a pattern matches the buffer op; `GroupOp.All-{Ops.STAGE}` does not."""
    if isinstance(pattern, ast.BinOp) and isinstance(pattern.op, ast.Sub):
        return _names_stage(pattern.left)
    is_stage = isinstance(pattern, ast.Attribute) and pattern.attr in STAGE_OPS
    return is_stage or any(map(_names_stage, ast.iter_child_nodes(pattern)))


def _writes_realize_map(function: Function) -> bool:
    for node in ast.walk(function):
        match node:
            case ast.Subscript(written, ctx=ast.Store()) | ast.Call(ast.Attribute(written, "update")):
                if isinstance(written, ast.Attribute) and written.attr.endswith("realize_map"):
                    return True
                if isinstance(written, ast.Name) and (written.id.endswith("realize_map") or written.id == "ctx"):
                    return True
    return False


# *** their tests keep what they see


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

    def rewrite(self, body: list[ast.stmt], path: Path, in_loop: bool) -> None:
        """Rewrites the statements of a block; `path` are the tests before it."""
        for statement in body:
            if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                continue
            # the body of a loop, what a `try` does, and so on
            blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
            blocks += [handler.body for handler in getattr(statement, "handlers", ())]
            # the lines of blocks are not the statement's
            last = statement.lineno if any(blocks) else statement.end_lineno or statement.lineno
            lines = range(statement.lineno, last + 1)
            self.paths |= dict.fromkeys(lines, path)
            if in_loop:
                self.loop_lines.update(lines)
            if isinstance(statement, ast.If):
                path = self._rewrite_if(statement, path, in_loop)
                continue
            if isinstance(statement, ast.Return):
                self._rewrite_return(statement, in_loop)
            for block in blocks:
                self.rewrite(block, path, in_loop or isinstance(statement, (ast.For, ast.While)))

    def _rewrite_if(self, statement: ast.If, path: Path, in_loop: bool) -> Path:
        """Returns the path to the statement after the `if`."""
        line = statement.test.lineno
        statement.test = self.keep(statement.test, in_loop)
        self.rewrite(statement.body, (*path, (line, True)), in_loop)
        self.rewrite(statement.orelse, (*path, (line, False)), in_loop)
        if statement.body[0].lineno == statement.lineno:
            # `if test: decides` on one line: what decides on this line is in the body
            self.paths[statement.lineno] = (*path, (line, True))
        if isinstance(statement.body[-1], _LEAVES):
            return (*path, (line, False))
        return path

    def _rewrite_return(self, statement: ast.Return, in_loop: bool) -> None:
        value = statement.value or ast.copy_location(ast.Constant(None), statement)
        if isinstance(value, ast.IfExp):
            value.test = self.keep(value.test, in_loop)
        is_none = isinstance(value, ast.Constant) and value.value is None
        if self.kind in RULES or (self.kind == "makes" and not is_none):
            statement.value = _returned(value, statement)

    def keep(self, test: ast.expr, in_loop: bool) -> ast.expr:
        """Returns a test that keeps its parts and its outcome."""
        keeper = PartKeeper(test)
        kept = self.tests[test.lineno] = Test(test.lineno, ast.unparse(test), keeper.names, in_loop)
        if self.kind == "makes":
            return test  # it runs for every node
        outcome = ast.NamedExpr(ast.Name(kept.outcome, ast.Store()), keeper.visit(test))
        if not keeper.names:
            return ast.copy_location(outcome, test)
        # a part that this test does not evaluate must not have the value of the last time
        reset: ast.expr = ast.Constant(None)
        for name in keeper.names.values():
            reset = ast.NamedExpr(ast.Name(name, ast.Store()), reset)
        return ast.copy_location(ast.BoolOp(ast.Or(), [reset, outcome]), test)


_known: dict[str, dict[tuple[int, str], Deciding]] = {}  # file -> (first line, name) of a function -> the function


def instrument(source: str | bytes, filename: str) -> ast.Module | None:
    """Returns a module's tree whose deciding functions keep what they see, None if it has none; `deciding_of` knows
    them from then on. Raises SyntaxError."""
    tree = ast.parse(source, filename)
    known = _known[filename] = {}
    for function, kind in find_deciding(tree).items():
        rewritten = rewrite_function(function, kind)
        known[rewritten.line, rewritten.name] = rewritten
    return ast.fix_missing_locations(tree) if known else None


def rewrite_function(function: Function, kind: Kind) -> Deciding:
    """Rewrites a deciding function. Returns what is known of it before it runs."""
    if isinstance(function, ast.FunctionDef):
        first = min([function.lineno, *(d.lineno for d in function.decorator_list)])
        deciding = Deciding(function.name, kind, first)
        deciding.rewrite(function.body, (), in_loop=False)
        if kind == "places":
            _PlaceKeeper().visit(function)
        if kind in RULES and not isinstance(function.body[-1], (ast.Return, ast.Raise)):
            # a rule without an answer leaves the buffer as it is
            last = ast.Constant(None, lineno=function.end_lineno or function.lineno, col_offset=0)
            function.body.append(ast.copy_location(ast.Return(_returned(last, last)), last))
        return deciding
    deciding = Deciding("<lambda>", kind, function.lineno)
    path: Path = ()
    if isinstance(function.body, ast.IfExp):
        path = ((function.body.test.lineno, True),)
        function.body.test = deciding.keep(function.body.test, in_loop=False)
    if kind in RULES:
        function.body = _returned(function.body, function.body)
    deciding.paths = dict.fromkeys(range(function.lineno, (function.end_lineno or function.lineno) + 1), path)
    return deciding


class PartKeeper(ast.NodeTransformer):
    """Puts the parts of a test into local variables: names, attributes and subscripts that say something and cost
    nothing; none with a call, or in a comprehension or lambda, which has its own names. `names`: text -> variable."""

    def __init__(self, test: ast.expr) -> None:
        self.line, self.names = test.lineno, dict[str, str]()
        named = [n for n in ast.walk(test) if isinstance(n, ast.Name)]
        self.excluded = _CONSTANT_BASES.union(n.id for n in named if isinstance(n.ctx, ast.Store))

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, (ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp, ast.Lambda)):
            return node
        if isinstance(node, (ast.Attribute, ast.Subscript, ast.Name)) and self._is_part(node):
            # a part may be in a test twice: both write to the same variable
            name = self.names.setdefault(ast.unparse(node), f"_vmapdbg_{self.line}_{len(self.names)}")
            return ast.copy_location(ast.NamedExpr(ast.Name(name, ast.Store()), node), node)
        return super().visit(node)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        # a function that is called is no value, but the object of a method is one
        if isinstance(node.func, ast.Attribute):
            node.func.value = self.visit(node.func.value)
        node.args = list(map(self.visit, node.args))
        node.keywords = list(map(self.visit, node.keywords))
        return node

    def _is_part(self, node: ast.Attribute | ast.Subscript | ast.Name) -> bool:
        nodes = list(ast.walk(node))
        if any(isinstance(n, (ast.Call, ast.NamedExpr, ast.GeneratorExp)) for n in nodes):
            return False
        is_read = isinstance(node.ctx, ast.Load)
        return is_read and not any(isinstance(n, ast.Name) and n.id in self.excluded for n in nodes)


class _PlaceKeeper(ast.NodeTransformer):
    """Has each `.bufferize(...)` of a function reported."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        is_place = isinstance(node.func, ast.Attribute) and node.func.attr == "bufferize"
        return _returned(node, node) if is_place else node


def _returned(value: ast.expr, at: ast.AST) -> ast.expr:
    call = ast.Call(ast.Name(RETURNED, ast.Load()), [ast.Constant(getattr(at, "lineno", 0)), value], [])
    return ast.copy_location(call, value)


# *** a decision, from the frame of the function that makes it


def deciding_of(frame: FrameType) -> Deciding | None:
    """Returns the deciding function of a frame, None for any other function."""
    code = frame.f_code
    return _known.get(code.co_filename, {}).get((code.co_firstlineno, code.co_name))


def read_decision(frame: FrameType, line: int) -> DecisionRecord:
    """Returns the decision of a statement: place, conditions before it (a rule's lambda first), UOps of the call."""
    caller, code = frame.f_back, frame.f_code
    before = () if caller is None else _read_conditions(caller, caller.f_lineno)
    text = linecache.getline(code.co_filename, line).strip()
    place = _relative(code.co_filename), line, code.co_name, text
    return DecisionRecord(*place, (*before, *_read_conditions(frame, line)), list_operands(frame))


def list_operands(frame: FrameType) -> dict[str, UOp]:
    """Returns the UOps that a function was called with, by the names of its parameters."""
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    values = frame.f_locals
    return {name: values[name] for name in names if name in values and _is_uop(values[name])}


def _read_conditions(frame: FrameType, line: int) -> Iterator[Condition]:
    """Yields the tests on the path to a line of a deciding function; outside of a loop also the other tests that were
    evaluated before it: in a loop another test may have its outcome from an earlier step."""
    function = deciding_of(frame)
    if function is None:
        return
    values = frame.f_locals
    path = dict(function.paths.get(line, ()))
    for at, test in function.tests.items():
        is_evaluated = test.outcome in values and not test.in_loop
        if at not in path and (not is_evaluated or line in function.loop_lines):
            continue
        holds = path.get(at)
        if is_evaluated and isinstance(values[test.outcome], _PLAIN):
            holds = bool(values[test.outcome])
        yield Condition(test.line, test.text, holds, _read_parts(test, values))


def _read_parts(test: Test, values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of the parts of a test by their texts, if they were evaluated and have a short text."""
    parts: dict[str, Any] = {}
    for text, name in test.parts.items():
        value: Any = values.get(name)
        if value is None or not _is_shown(value):
            continue
        if not _is_uop(value) and hasattr(value, "value") and hasattr(value, "key"):
            value = value.value  # a switch such as PCONTIG: what it is now
        if isinstance(value, list):
            value = value.copy()  # it goes on to change after the test
        parts[text] = value
    return parts


def _is_uop(value: Any) -> bool:
    return hasattr(value, "op") and hasattr(value, "src")


def _is_shown(value: Any) -> bool:
    """Whether a value has a short text: plain objects show addresses, collections or our pass's state whole graphs."""
    if isinstance(value, (set, frozenset, dict)) or type(value).__repr__ is object.__repr__:
        return False
    if callable(value) and not _is_uop(value):
        return False
    is_ours = type(value).__module__.startswith(OVERLAY_PACKAGE)
    # BufferizeOpts of a node are as short as stock's
    return not is_ours or not is_dataclass(value) or hasattr(value, "addrspace")


@functools.cache
def _relative(filename: str) -> str:
    """Returns `schedule/indexing.py` for any folder of tinygrad, `overlay/schedule/indexing.py` for our pass."""
    ours = f"{overlay_dir()}{os.sep}"
    if filename.startswith(ours):
        return f"{OVERLAY}/{filename.removeprefix(ours)}"
    _, found, relative = filename.replace(os.sep, "/").rpartition("/tinygrad/")
    return relative if found else os.path.basename(filename)
