"""Kernel source compared: names that a renderer makes up are no difference, and lines are paired by what they do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from vmapdbg.diff.naming import choose_names
from vmapdbg.diff.sequences import find_opcodes

# What tinygrad's renderers number: registers, loop variables, labels. What follows the number of a buffer is its
# size, which is a difference.
_VARIABLE = re.compile(
    r"(?P<prefix>alu|val|acc|cast|bitcast|temp|wmma|gep|const|bidx|buf|[A-Za-z]*idx|data|loop_[a-z]+_)"
    r"(?P<number>\d+(?:_\d+)*?)(?P<rest>(?<=\d)_\d+|phi|cmp)?"
)
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|\s+|<<|>>|[-+*/<>=!&|]=|&&|\|\||.")
_KERNEL = "kernel#"
# Two lines with fewer tokens in common are not the same line, changed.
_LEAST_ALIKE = 0.5
# Blocks of more line pairs than this are not paired line by line.
_MOST_PAIRS = 4000

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
    # `alu#`, `data#_6`: what stays when the number goes; the text itself where the token is no variable
    form: str

    @property
    def is_variable(self) -> bool:
        return self.form != self.text


_Line = Sequence[_Token]
_Pairs = list[tuple[int | None, int | None]]


def canonize_source(source: str, name: str) -> str:
    """Returns a source with its variables numbered in the order in which they appear, and no kernel name."""
    return _number_variables(re.sub(rf"\b{re.escape(name)}\b", _KERNEL, source.strip()))


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
    return ["".join(token.form for token in _tokenize(line, {name})) for line in lines]


def align_sources(before: str, after: str, names: Collection[str]) -> list[LinePair]:
    """Returns the lines of two sources side by side; `names` are the names of the kernels in them.

    A variable of before is the variable of after that stands in its place in most lines; only where it stands
    for another one is it marked.
    """
    left, right = before.strip("\n").split("\n"), after.strip("\n").split("\n")
    tokens = [[_tokenize(line, names) for line in side] for side in (left, right)]
    pairs = _pair_lines(*tokens)
    renamed = _choose_variables(pairs, *tokens)
    lines: list[LinePair] = []
    for i, j in pairs:
        if i is None or j is None:
            lines.append(LinePair(None if i is None else left[i], None if j is None else right[j]))
        else:
            marks = _mark_tokens(tokens[0][i], tokens[1][j], renamed)
            lines.append(LinePair(left[i], right[j], *marks))
    return lines


def _tokenize(line: str, names: Collection[str]) -> _Line:
    tokens = _tokenize_line(line)
    if not any(name in line for name in names):
        return tokens
    return [replace(token, form=_KERNEL) if token.text in names else token for token in tokens]


# The layers of a network have most of their lines in common.
@lru_cache(maxsize=16384)
def _tokenize_line(line: str) -> tuple[_Token, ...]:
    found = [match for match in _TOKEN.finditer(line) if not match[0].isspace()]
    return tuple([_Token(match[0], match.start(), _find_form(match[0])) for match in found])


def _find_form(text: str) -> str:
    match = _VARIABLE.fullmatch(text)
    if match is None:
        return text
    return f"{match['prefix']}#{match['rest'] or ''}"


def _pair_lines(before: Sequence[_Line], after: Sequence[_Line]) -> _Pairs:
    forms = [[tuple(token.form for token in line) for line in side] for side in (before, after)]
    pairs: _Pairs = []
    for tag, i, end, j, end_after in find_opcodes(*forms):
        if tag == "equal":
            pairs += [(i + n, j + n) for n in range(end - i)]
        else:
            pairs += _pair_block(before, after, range(i, end), range(j, end_after))
    return pairs


def _pair_block(before: Sequence[_Line], after: Sequence[_Line], left: range, right: range) -> _Pairs:
    """Pairs the lines of two blocks in order, so that the sum of their likeness is the largest."""
    if not left or not right or len(left) * len(right) > _MOST_PAIRS:
        return [*((i, None) for i in left), *((None, j) for j in right)]
    counts = [
        [Counter(token.text for token in side[i]) for i in block] for side, block in ((before, left), (after, right))
    ]
    best = [[0.0] * (len(right) + 1) for _ in range(len(left) + 1)]
    alike = [[_share(one, other) for other in counts[1]] for one in counts[0]]
    for i in reversed(range(len(left))):
        for j in reversed(range(len(right))):
            together = best[i + 1][j + 1] + alike[i][j] if alike[i][j] else 0.0
            best[i][j] = max(together, best[i + 1][j], best[i][j + 1])
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
    return [*pairs, *((n, None) for n in left[i:]), *((None, n) for n in right[j:])]


def _share(one: Counter[str], other: Counter[str]) -> float:
    whole = one.total() + other.total()
    share = 2 * (one & other).total() / whole if whole else 0.0
    # to the third: one line with its own partner is better than two lines with each other's
    return share**3 if share >= _LEAST_ALIKE else 0.0


def _choose_variables(pairs: _Pairs, before: Sequence[_Line], after: Sequence[_Line]) -> dict[str, str]:
    votes: Counter[tuple[str, str]] = Counter()
    for i, j in pairs:
        if i is None or j is None:
            continue
        for one, other in _pair_tokens(before[i], after[j]):
            if one.is_variable:
                votes[one.text, other.text] += 1
    return choose_names(votes)


def _pair_tokens(before: _Line, after: _Line) -> list[tuple[_Token, _Token]]:
    forms = [[token.form for token in side] for side in (before, after)]
    if forms[0] == forms[1]:
        return list(zip(before, after, strict=True))
    pairs: list[tuple[_Token, _Token]] = []
    for tag, i, end, j, end_after in find_opcodes(*forms):
        if tag == "equal":
            pairs += zip(before[i:end], after[j:end_after], strict=True)
    return pairs


def _mark_tokens(before: _Line, after: _Line, renamed: dict[str, str]) -> tuple[tuple[Mark, ...], tuple[Mark, ...]]:
    left = [renamed.get(token.text, token.text + "'") if token.is_variable else token.text for token in before]
    # the kernel's own name is no variable with votes where it stands alone
    left = [_KERNEL if token.form == _KERNEL else text for token, text in zip(before, left, strict=True)]
    right = [_KERNEL if token.form == _KERNEL else token.text for token in after]
    marks: tuple[list[Mark], list[Mark]] = ([], [])
    if left != right:
        for tag, i, end, j, end_after in find_opcodes(left, right):
            if tag != "equal":
                _add_mark(marks[0], before[i:end])
                _add_mark(marks[1], after[j:end_after])
    return tuple(marks[0]), tuple(marks[1])


def _add_mark(marks: list[Mark], tokens: _Line) -> None:
    if tokens:
        marks.append((tokens[0].start, tokens[-1].start + len(tokens[-1].text)))
