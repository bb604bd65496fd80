"""Edits of the user's source: a node's value can be stored at the expressions of its line that call its method."""

import ast
import difflib
import keyword
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

STORE, COPY, STORE_GRADIENT = ".contiguous()", ".clone()", ".contiguous_backward()"
# operators whose class has another name than the method of Tensor that Python calls
_METHODS = {"mult": "mul", "matmult": "matmul", "div": "truediv", "usub": "neg", "lte": "le", "gte": "ge"}
_METHODS |= {"noteq": "ne", "bitand": "and", "bitor": "or", "bitxor": "xor"}
# their arguments are numbers, not Tensors
_TAKES_NUMBERS = re.compile(
    "reshape|view|expand|permute|transpose|unsqueeze|flatten|repeat|chunk|split|shrink"
    "|arange|empty|zeros|ones|full|eye|rand|randn|randint|uniform|normal|range"
)
_VALUES = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Compare)
_STORED = re.compile(rb"^[ \t)]*\.?(contiguous|clone|realize)\(")
_BLOCK = 16
_MOST_SHOWN, _END_SHOWN = 40, 14


@dataclass(frozen=True, order=True)
class Edit:
    """One change. In `file`, the bytes from `start` to `end` are `old` and become `new`; `line` is its place. Without a
    file it changes how the program runs: `new` is what to type, an environment variable or options."""

    file: str = ""
    start: int = 0
    end: int = 0
    line: str = ""
    label: str = ""
    old: str = ""
    new: str = ""

    def overlaps(self, other: "Edit") -> bool:
        return self.file == other.file and self.start < other.end and other.start < self.end


class Source:
    """A file of the user as it was read. Raises SyntaxError or ValueError if it is not Python in plain UTF-8."""

    def __init__(self, file: str, data: bytes) -> None:
        self.file, self.data = file, data
        if data.decode().startswith("\ufeff"):
            # the offsets of the first line do not count it
            raise ValueError("it begins with a byte order mark")
        self.tree = ast.parse(data)
        # as Python counts lines
        self._starts = list(accumulate(map(len, data.splitlines(keepends=True)), initial=0))
        self._values = [node for node in _walk(self.tree) if isinstance(node, _VALUES) and not self._is_stored(node)]

    def find_values(self, line: int, method: str | None) -> Sequence[ast.expr]:
        """Returns a line's expressions that call a method of Tensor, else the values that it assigns or returns."""
        here = [node for node in self._values if node.lineno <= line <= (node.end_lineno or line)]
        found = [node for node in here if method is not None and _calls(node, method.strip("_"))]
        if found:
            return found
        ends = {id(s.value) for s in ast.walk(self.tree) if isinstance(s, (ast.Assign, ast.Return))}
        return [node for node in here if id(node) in ends]

    def store(self, node: ast.expr, suffix: str = STORE) -> Edit:
        """Returns the edit that calls a method on the value of an expression."""
        start, end = self._span(node)
        before, after = self.data[:start].rstrip(b" \t"), self.data[end:].lstrip(b" \t")
        word = re.search(rb"[\w\])]+$", before[:-1].rstrip(b" \t"))
        is_call = word is not None and not keyword.iskeyword(word[0].decode())
        if before.endswith(b"(") and after.startswith(b")") and not is_call:
            # with the parentheses around it
            start, end = len(before) - 1, len(self.data) - len(after) + 1
        old = self.data[start:end].decode()
        is_simple = old.startswith("(") or isinstance(node, (ast.Call, ast.Subscript))
        new = f"{old if is_simple else f'({old})'}{suffix}"
        return self._edit(f"{suffix} on {_shorten(old)}", node, start, end, new)

    def split_scan(self, node: ast.expr) -> Iterator[Edit]:
        """Yields the edit that computes `x.cumsum(axis)` in blocks of 16; it fails if the axis is no multiple of 16."""
        match node:
            case ast.Call(func=ast.Attribute(attr="cumsum") as method, args=args, keywords=[]):
                pass
            case _:
                return
        try:
            axis = ast.literal_eval(args[0]) if args else 0
        except ValueError:
            return
        (start, end), length = self._span(node), len(b"cumsum")
        summed = self.data[start : self._span(method)[1] - length].decode().rstrip().removesuffix(".")
        # the axes of the blocks, and of the elements of a block
        blocks, inside = (axis - 1, axis) if axis < 0 else (axis, axis + 1)
        around = ":, " * inside if axis >= 0 else "..., "
        last = f"s[{around}-1:{', :' * -(axis + 1)}]"
        new = (
            f"(lambda s: (s + ({last}.cumsum({blocks}) - {last})).flatten({blocks}, {inside}))"
            f"({summed}.unflatten({axis}, (-1, {_BLOCK})).cumsum({inside}))"
        )
        yield self._edit(f"blocks of {_BLOCK} for {_shorten(self.data[start:end].decode())}", node, start, end, new)

    def list_stores(self, lines: Collection[int]) -> Iterator[Edit]:
        """Yields edits that remove `.contiguous()` at some lines."""
        for node in ast.walk(self.tree):
            match node:
                case ast.Call(func=ast.Attribute(value=value, attr="contiguous"), args=[], keywords=[]):
                    start, end = self._span(value)[1], self._span(node)[1]
                    start = self.data.index(b".", start)
                    if node.end_lineno in lines:
                        yield self._edit(f"no .contiguous() on {_shorten(ast.unparse(value))}", node, start, end, "")

    def _edit(self, label: str, node: ast.expr, start: int, end: int, new: str) -> Edit:
        return Edit(self.file, start, end, f"{self.file}:{node.lineno}", label, self.data[start:end].decode(), new)

    def _span(self, node: ast.expr) -> tuple[int, int]:
        last = node.end_lineno or node.lineno
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[last - 1] + (node.end_col_offset or 0)

    def _is_stored(self, node: ast.expr) -> bool:
        """Returns whether a value is stored already, or a number: it has no names but those of constants."""
        start, end = self._span(node)
        names = (part.id for part in ast.walk(node) if isinstance(part, ast.Name))
        stored = _STORED.match(self.data[end:]) or _STORED.search(self.data[start:end].rpartition(b".")[2])
        return stored is not None or all(map(str.isupper, names))


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes of a tree, without types, defaults, indices, and arguments that are numbers."""
    yield node
    children: Iterable[ast.AST | None] = ast.iter_child_nodes(node)
    match node:
        case ast.arguments() | ast.JoinedStr():
            return
        case ast.Subscript(value=value) | ast.AnnAssign(value=value):
            children = [value]
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if _TAKES_NUMBERS.fullmatch(name):
            children = [node.func]
    for child in filter(None, children):
        yield from _walk(child)


def _calls(node: ast.expr, method: str) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name == method
        case ast.BinOp(op=op) | ast.UnaryOp(op=op) | ast.Compare(ops=[op]):
            name = type(op).__name__.lower()
            return _METHODS.get(name, name) in (method, method.removeprefix("r"))
        case _:
            return isinstance(node, ast.Subscript) and method == "getitem"


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - _END_SHOWN - 3]}...{text[-_END_SHOWN:]}"


def apply_edits(data: bytes, edits: Iterable[Edit]) -> bytes:
    """Returns a file with edits, which do not overlap. Raises SyntaxError if that is no Python."""
    for edit in sorted(edits, key=lambda edit: -edit.start):
        data = data[: edit.start] + edit.new.encode() + data[edit.end :]
    ast.parse(data)
    return data


def diff_file(file: str, before: bytes, after: bytes) -> str:
    """Returns the unified diff of two versions of a file."""
    one, other = (data.decode().splitlines(keepends=True) for data in (before, after))
    lines = difflib.unified_diff(one, other, file, file, n=1)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
