"""Compares kernel sources. Names that a renderer numbers are no difference, and lines are paired by what they do."""

import re
import struct
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TypeVar

from vmapdbg.diff.pairing import Numbers, align, choose_names, find_opcodes, make_numbers, share

# Names that tinygrad's renderers number: registers, loops, labels. A buffer's size follows its number: it is compared.
_VARIABLE = re.compile(
    r"(?P<prefix>alu|val|acc|cast|bitcast|temp|wmma|gep|const|bidx|buf|[A-Za-z]*idx|data|loop_[a-z]+_)"
    r"(?P<number>\d+(?:_\d+)*?)(?P<rest>(?<=\d)_\d+|phi|cmp)?"
)
_SAME_PREFIX = {"acc": "buf"}  # since 0.14 an accumulator is called a buffer, in registers
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\d.]*e[-+]\d+f?|\d[\w.]*|\s+|<<|>>|[-+*/<>=!&|]=|&&|\|\||.")
_KERNEL = "kernel#"
_LEAST_ALIKE = 0.5  # with a lower share of common tokens, two lines are not versions of one
_MOST_KNOWN = 16384  # how many lines are cached: the layers of a network share most of their lines

_FLOAT = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[-+]?\d+)?f\b")  # 32 bits; renderers print more digits
_LARGEST = 3.4e38
_INTEGER = re.compile(r",\s*(?:const )?int (\w+)(?=\s*[,)])")
_COPY = r"\n\s*int (\w+) = {};[^\n]*"  # some renderers copy a thread number to a variable first

_T = TypeVar("_T")
MarkedSpan = tuple[int, int]


@dataclass(frozen=True)
class LinePair:
    """A line of before and its line of after, None if there is none. `marks` are (start, end) offsets of changes."""

    before: str | None
    after: str | None
    marks_before: tuple[MarkedSpan, ...] = ()
    marks_after: tuple[MarkedSpan, ...] = ()

    @property
    def is_same(self) -> bool:
        """Nothing but names and indentation differs."""
        return self.before is not None and self.after is not None and not self.marks_before and not self.marks_after


@dataclass(frozen=True)
class _Token:
    text: str
    start: int
    # a variable without its number (`alu#`, `data#_6`), else the text with its number in one spelling
    form: str

    @property
    def is_variable(self) -> bool:
        return "#" in self.form and self.form != _KERNEL


@dataclass(frozen=True, eq=False)
class _Line:
    """A line of source as tokens, without spaces."""

    text: str
    tokens: Sequence[_Token]

    @cached_property
    def forms(self) -> tuple[str, ...]:
        return tuple([token.form for token in self.tokens])

    @cached_property
    def counts(self) -> Counter[str]:
        return Counter([token.text for token in self.tokens])


def canonize_source(source: str, name: str) -> str:
    """Returns a source without the kernel's name, its variables numbered in order of appearance."""
    unified = unify_spelling(re.sub(rf"\b{re.escape(name)}\b", _KERNEL, source.strip()), _KERNEL)
    return _number_variables(unified)


# the layers of a network have the same source under many names
@lru_cache(maxsize=1024)
def _number_variables(source: str) -> str:
    numbers: defaultdict[str, Numbers] = defaultdict(make_numbers)

    def rename(match: re.Match[str]) -> str:
        form = _form(match[0])
        return match[0] if form == match[0] else form.replace("#", str(numbers[form][match[0]]))

    return re.sub(r"[A-Za-z_]\w*", rename, source)


def blank_lines(source: str, name: str) -> list[str]:
    """Returns the lines of a source without the numbers of variables: a measure of how alike two programs are."""
    return ["".join(line.forms) for line in _read_lines(source, {name})]


def align_sources(before: str, after: str, names: Collection[str]) -> Iterator[LinePair]:
    """Yields the lines of two sources side by side; `names` are the names of their kernels. A variable corresponds to
    the variable of after that has its place in most lines, and is marked where another has."""
    pairs = _pair_lines(*(list(_read_lines(source, names)) for source in (before, after)))
    votes: Counter[tuple[str, str]] = Counter()
    for one, other in pairs:
        if one is not None and other is not None:
            for tag, i, end, j, end_after in find_opcodes(one.forms, other.forms):
                tokens = zip(one.tokens[i:end], other.tokens[j:end_after], strict=False)
                votes.update((a.text, b.text) for a, b in tokens if tag == "equal" and a.is_variable)
    renamed = choose_names(votes)
    for one, other in pairs:
        if one is None or other is None:
            yield LinePair(one and one.text, other and other.text)
        else:
            yield LinePair(one.text, other.text, *_mark_tokens(one.tokens, other.tokens, renamed))


def keep_near(lines: Sequence[_T], important: Iterable[int], around: int) -> Iterator[tuple[int, _T | None]]:
    """Yields the lines at most `around` from an important line, each with the count of lines left out above it; at last
    None with the count of lines left out below."""
    near = {number + step for number in important for step in range(-around, around + 1)}
    gap = 0
    for number, line in enumerate(lines):
        if number in near:
            yield gap, line
            gap = 0
        else:
            gap += 1
    if gap:
        yield gap, None


def _read_lines(source: str, names: Collection[str]) -> Iterator[_Line]:
    for text in source.strip("\n").split("\n"):
        line = _tokenize(text)
        if any(name in text for name in names):
            tokens = [replace(token, form=_KERNEL) if token.text in names else token for token in line.tokens]
            line = _Line(text, tokens)
        yield line


@lru_cache(maxsize=_MOST_KNOWN)
def _tokenize(text: str) -> _Line:
    found = [match for match in _TOKEN.finditer(text) if not match[0].isspace()]
    return _Line(text, [_Token(match[0], match.start(), _form(match[0])) for match in found])


def _form(text: str) -> str:
    match = _VARIABLE.fullmatch(text)
    if match is None:
        return unify_numbers(text)
    prefix = _SAME_PREFIX.get(match["prefix"], match["prefix"])
    return f"{prefix}#{match['rest'] or ''}"


def _pair_lines(before: Sequence[_Line], after: Sequence[_Line]) -> list[tuple[_Line | None, _Line | None]]:
    """Pairs equal and similar lines. Between two pairs the other lines stand alone, the lines of before first."""
    pairs: list[tuple[_Line | None, _Line | None]] = []
    row = column = 0
    for i, j in [*align(before, after, lambda line: line.forms, _line_likeness), (len(before), len(after))]:
        pairs += [(line, None) for line in before[row:i]]
        pairs += [(None, line) for line in after[column:j]]
        pairs += zip(before[i : i + 1], after[j : j + 1], strict=True)
        row, column = i + 1, j + 1
    return pairs


@lru_cache(maxsize=_MOST_KNOWN)
def _line_likeness(one: _Line, other: _Line) -> float:
    common = share((one.counts & other.counts).total(), one.counts.total() + other.counts.total())
    return common if common >= _LEAST_ALIKE else 0.0


def _mark_tokens(
    before: Sequence[_Token], after: Sequence[_Token], renamed: dict[str, str]
) -> tuple[tuple[MarkedSpan, ...], tuple[MarkedSpan, ...]]:
    # a variable without a partner gets a `'`, and a kernel's name is never a difference
    left = [renamed.get(token.text, token.text + "'") if token.is_variable else token.form for token in before]
    right = [token.text if token.is_variable else token.form for token in after]
    if left == right:
        return (), ()
    marks_before: list[MarkedSpan] = []
    marks_after: list[MarkedSpan] = []
    for tag, i, end, j, end_after in find_opcodes(left, right):
        for marks, tokens in ((marks_before, before[i:end]), (marks_after, after[j:end_after])):
            if tag != "equal" and tokens:
                marks.append((tokens[0].start, tokens[-1].start + len(tokens[-1].text)))
    return tuple(marks_before), tuple(marks_after)


# *** spelling: releases print numbers and arguments in different ways


def unify_spelling(source: str, kernel: str) -> str:
    """Returns a source with numbers in one spelling, without integer arguments (thread numbers, variables of the
    schedule) that the kernel does not use; the others are named by their order."""
    start = source.find(f"{kernel}(")
    end = source.find(")", start)
    if start < 0 or end < 0:
        return unify_numbers(source)
    head, body = source[: end + 1], source[end + 1 :]
    number = 0
    for name in _INTEGER.findall(head):
        copied = re.search(_COPY.format(re.escape(name)), body)
        if copied is not None:
            body = re.sub(rf"\b{copied[1]}\b", name, body[: copied.start()] + body[copied.end() :])
        body, uses = re.subn(rf"\b{re.escape(name)}\b", f"integer{number}", body)
        number += uses > 0
    return unify_numbers(_INTEGER.sub("", head) + body)


def unify_numbers(text: str) -> str:
    """Returns a text whose 32 bit numbers have only the digits that they need."""
    return _FLOAT.sub(lambda match: unify_float(match[0]), text)


def unify_float(literal: str) -> str:
    """Returns a 32 bit number as its exact value: `0.025f` and `0.02500000037252903f` give the same text."""
    number = float(literal[:-1])
    if abs(number) > _LARGEST:
        return literal
    (value,) = struct.unpack("<f", struct.pack("<f", number))
    return f"{value!r}f"
