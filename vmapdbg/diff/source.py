"""Kernel source compared: names that a renderer makes up are no difference, and lines are paired by what they do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from vmapdbg.diff.naming import choose_names
from vmapdbg.diff.pairing import share
from vmapdbg.diff.sequences import find_opcodes
from vmapdbg.diff.spelling import settle_numbers, settle_spelling

# What tinygrad's renderers number: registers, loop variables, labels. What follows the number of a buffer is its
# size, which is a difference.
_VARIABLE = re.compile(
    r"(?P<prefix>alu|val|acc|cast|bitcast|temp|wmma|gep|const|bidx|buf|[A-Za-z]*idx|data|loop_[a-z]+_)"
    r"(?P<number>\d+(?:_\d+)*?)(?P<rest>(?<=\d)_\d+|phi|cmp)?"
)
# an accumulator is a buffer in registers, and called so from 0.14 on
_SAME_PREFIX = {"acc": "buf"}
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\d.]*e[-+]\d+f?|\d[\w.]*|\s+|<<|>>|[-+*/<>=!&|]=|&&|\|\||.")
_KERNEL = "kernel#"
# Two lines with fewer tokens in common are not the same line, changed.
_LEAST_ALIKE = 0.5
# Blocks of more line pairs than this are not paired line by line.
_MOST_PAIRS = 4000
# How many lines are remembered: the layers of a network have most of theirs in common.
_MOST_KNOWN = 16384

Mark = tuple[int, int]


@dataclass(frozen=True)
class LinePair:
    """A line of before beside its line of after; None: that side has none here. `marks` are the (start, end)
    offsets of what changed inside a line that both have."""

    before: str | None
    after: str | None
    marks_before: tuple[Mark, ...] = ()
    marks_after: tuple[Mark, ...] = ()

    @property
    def is_same(self) -> bool:
        """Nothing but names and indentation differs."""
        return self.before is not None and self.after is not None and not self.marks_before and not self.marks_after


@dataclass(frozen=True)
class _Token:
    text: str
    start: int
    # `alu#`, `data#_6`: what stays when the number goes; else the text, a number spelled in one way
    form: str

    @property
    def is_variable(self) -> bool:
        return "#" in self.form and self.form != _KERNEL


@dataclass(frozen=True, eq=False)
class _Line:
    """A line of source as its tokens, spaces left out."""

    text: str
    tokens: Sequence[_Token]

    @cached_property
    def forms(self) -> tuple[str, ...]:
        return tuple([token.form for token in self.tokens])

    @cached_property
    def counts(self) -> Counter[str]:
        return Counter([token.text for token in self.tokens])


_Pairs = list[tuple[_Line | None, _Line | None]]


def canonize_source(source: str, name: str) -> str:
    """Returns a source with its variables numbered in the order in which they appear, and no kernel name."""
    settled = settle_spelling(re.sub(rf"\b{re.escape(name)}\b", _KERNEL, source.strip()), _KERNEL)
    return _number_variables(settled)


# The layers of a network are one source under many names.
@lru_cache(maxsize=1024)
def _number_variables(source: str) -> str:
    numbers: dict[str, str] = {}
    counts: Counter[str] = Counter()

    def rename(match: re.Match[str]) -> str:
        text = match[0]
        form = _find_form(text)
        if form == text:
            return text
        if text not in numbers:
            numbers[text] = form.replace("#", str(counts[form]))
            counts[form] += 1
        return numbers[text]

    return re.sub(r"[A-Za-z_]\w*", rename, source)


def blank_lines(source: str, name: str) -> list[str]:
    """Returns the lines of a source without numbers in names, to tell how alike two programs are."""
    lines = source.strip("\n").split("\n")
    return ["".join(_read_line(line, {name}).forms) for line in lines]


def align_sources(before: str, after: str, names: Collection[str]) -> list[LinePair]:
    """Returns the lines of two sources side by side; `names` are the names of the kernels in them.

    A variable of before is the variable of after that stands in its place in most lines; only where it stands
    for another one is it marked.
    """
    left = [_read_line(line, names) for line in before.strip("\n").split("\n")]
    right = [_read_line(line, names) for line in after.strip("\n").split("\n")]
    pairs = _pair_lines(left, right)
    renamed = _choose_variables(pairs)
    lines: list[LinePair] = []
    for one, other in pairs:
        if one is None or other is None:
            lines.append(LinePair(one and one.text, other and other.text))
        else:
            lines.append(LinePair(one.text, other.text, *_mark_tokens(one.tokens, other.tokens, renamed)))
    return lines


def _read_line(text: str, names: Collection[str]) -> _Line:
    """Returns a line of a source whose kernels have these names."""
    line = _tokenize(text)
    if not any(name in text for name in names):
        return line
    return _Line(text, [replace(token, form=_KERNEL) if token.text in names else token for token in line.tokens])


@lru_cache(maxsize=_MOST_KNOWN)
def _tokenize(text: str) -> _Line:
    found = [match for match in _TOKEN.finditer(text) if not match[0].isspace()]
    return _Line(text, [_Token(match[0], match.start(), _find_form(match[0])) for match in found])


def _find_form(text: str) -> str:
    match = _VARIABLE.fullmatch(text)
    if match is None:
        return settle_numbers(text)
    prefix = _SAME_PREFIX.get(match["prefix"], match["prefix"])
    return f"{prefix}#{match['rest'] or ''}"


def _pair_lines(before: Sequence[_Line], after: Sequence[_Line]) -> _Pairs:
    pairs: _Pairs = []
    for tag, i, end, j, end_after in find_opcodes([line.forms for line in before], [line.forms for line in after]):
        if tag == "equal":
            pairs += zip(before[i:end], after[j:end_after], strict=True)
        else:
            pairs += _pair_block(before[i:end], after[j:end_after])
    return pairs


def _pair_block(left: Sequence[_Line], right: Sequence[_Line]) -> _Pairs:
    """Pairs the lines of two blocks in order, so that the sum of their likeness is the largest."""
    if not left or not right or len(left) * len(right) > _MOST_PAIRS:
        return [*((line, None) for line in left), *((None, line) for line in right)]
    # best[i][j] is the largest sum for left[i:] and right[j:]
    best = [[0.0] * (len(right) + 1) for _ in range(len(left) + 1)]
    alike = [[_find_likeness(one, other) for other in right] for one in left]
    for i in reversed(range(len(left))):
        for j in reversed(range(len(right))):
            best[i][j] = max(best[i + 1][j + 1] + alike[i][j], best[i + 1][j], best[i][j + 1])
    pairs: _Pairs = []
    i = j = 0
    while i < len(left) and j < len(right):
        if alike[i][j] and best[i][j] == best[i + 1][j + 1] + alike[i][j]:
            pairs.append((left[i], right[j]))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            pairs.append((left[i], None))
            i += 1
        else:
            pairs.append((None, right[j]))
            j += 1
    return [*pairs, *((line, None) for line in left[i:]), *((None, line) for line in right[j:])]


@lru_cache(maxsize=_MOST_KNOWN)
def _find_likeness(one: _Line, other: _Line) -> float:
    common = share((one.counts & other.counts).total(), one.counts.total() + other.counts.total())
    if common < _LEAST_ALIKE:
        return 0.0
    # to the third: one line with its own partner is better than two lines with each other's
    return common**3


def _choose_variables(pairs: _Pairs) -> dict[str, str]:
    votes: Counter[tuple[str, str]] = Counter()
    for before, after in pairs:
        if before is None or after is None:
            continue
        for one, other in _pair_tokens(before, after):
            if one.is_variable:
                votes[one.text, other.text] += 1
    return choose_names(votes)


def _pair_tokens(before: _Line, after: _Line) -> Iterator[tuple[_Token, _Token]]:
    if before.forms == after.forms:
        yield from zip(before.tokens, after.tokens, strict=True)
        return
    for tag, i, end, j, end_after in find_opcodes(before.forms, after.forms):
        if tag == "equal":
            yield from zip(before.tokens[i:end], after.tokens[j:end_after], strict=True)


def _mark_tokens(
    before: Sequence[_Token], after: Sequence[_Token], renamed: dict[str, str]
) -> tuple[tuple[Mark, ...], tuple[Mark, ...]]:
    left = [_name_after(token, renamed) for token in before]
    # the name of a kernel is no difference, whatever it is on the other side
    right = [token.text if token.is_variable else token.form for token in after]
    marks: tuple[list[Mark], list[Mark]] = ([], [])
    if left != right:
        for tag, i, end, j, end_after in find_opcodes(left, right):
            if tag != "equal":
                _add_mark(marks[0], before[i:end])
                _add_mark(marks[1], after[j:end_after])
    return tuple(marks[0]), tuple(marks[1])


def _name_after(token: _Token, renamed: dict[str, str]) -> str:
    """Returns a token of before as after calls it; a variable that after does not have gets a `'`."""
    if not token.is_variable:
        return token.form
    return renamed.get(token.text, token.text + "'")


def _add_mark(marks: list[Mark], tokens: Sequence[_Token]) -> None:
    if tokens:
        marks.append((tokens[0].start, tokens[-1].start + len(tokens[-1].text)))
