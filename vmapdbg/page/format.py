"""Numbers, names and places as short strings. The same value gives the same string everywhere."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from vmapdbg.model.capture import Capture, Kernel
from vmapdbg.model.wording import format_known, shorten_commit, split_place

if TYPE_CHECKING:
    from vmapdbg.diff.result import Side, Totals
    from vmapdbg.suite.compare import SuiteSide

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")
_PREFIXES = ((10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def format_bytes(count: int) -> str:
    """Returns a number of bytes: `48 B`, `40 KiB`, `1.5 MiB`. Below 1024 it is exact."""
    if abs(count) < 1024:
        return f"{count} B"
    value, unit = count / 1024, 0
    # 1023.95 would be rounded to 1024.0
    while abs(value) >= 1023.95 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f}".removesuffix(".0") + f" {_UNITS[unit]}"


def format_count(count: int) -> str:
    """Returns a number of ops or elements: exact with commas, and from a billion on `1.23 G`."""
    if abs(count) < 10**9:
        return f"{count:,}"
    size, prefix = next(item for item in _PREFIXES if abs(count) >= item[0])
    return f"{count / size:,.2f} {prefix}"


def round_count(count: int) -> str:
    """Returns a number of ops with three digits, for a table that compares: `999`, `37.6 M`, `1.23 G`."""
    if abs(count) < 10_000:
        return f"{count:,}"
    size, prefix = next(item for item in _PREFIXES if abs(count) >= item[0] * 0.9995)
    return f"{count / size:.3g} {prefix}"


def format_seconds(seconds: float) -> str:
    """Returns a time with three digits: `840 ns`, `20.1 us`, `1.52 ms`, `2.03 s`."""
    for size, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= size * 0.9995:
            return f"{seconds / size:#.3g}".removesuffix(".") + f" {unit}"
    return f"{seconds / 1e-9:.0f} ns"


def format_measured(by: str, number: float) -> str:
    """Returns a number of what was measured: seconds for `time`, ops for `ops`, else bytes."""
    if by == "time":
        return format_seconds(number)
    return format_count(int(number)) if by == "ops" else format_bytes(int(number))


def format_rate(amount: float, unit: str) -> str:
    """Returns an amount a second with three digits: `48.2 Gop/s`, `18.3 GB/s`, thousands of thousands."""
    size, prefix = next((item for item in _PREFIXES if amount >= item[0] * 0.9995), (1, ""))
    return f"{amount / size:#.3g}".removesuffix(".") + f" {prefix}{unit}/s"


def format_share(part: float, whole: float) -> str:
    """Returns a part in per cent, nothing if the whole is zero."""
    if not whole:
        return ""
    share = part / whole
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def format_redundancy(redundancy: float | None) -> str:
    """Returns how often each op that the graph asks for is executed, `64.0x`; `-` if it asks for none."""
    return format_known("{:,.1f}x", redundancy) or "-"


def join_change(before: str, after: str) -> str:
    """Returns `1 -> 2`, or one value if the other is empty or the same."""
    return f"{before} -> {after}" if before and after and before != after else before or after


def format_ratio(before: float, after: float) -> str:
    """Returns ` (0.38x)`, nothing if one of the amounts is zero."""
    if before <= 0 or after <= 0:
        return ""
    ratio = after / before
    return f" ({ratio:.2f}x)" if ratio < 10 else f" ({ratio:,.0f}x)"


def format_ids(ids: Iterable[int]) -> str:
    """Returns node ids in order, runs of three or more joined: `5, 7-12, 15`."""
    parts: list[str] = []
    # in a run, a number and its position grow together
    for _, run in groupby(enumerate(sorted(set(ids))), lambda item: item[1] - item[0]):
        numbers = [str(number) for _, number in run]
        parts += [f"{numbers[0]}-{numbers[-1]}"] if len(numbers) > 2 else numbers
    return ", ".join(parts)


def format_shape(shape: Sequence[int | str] | None) -> str:
    """Returns a shape as Python writes a tuple, nothing for a node without a shape."""
    if shape is None:
        return ""
    return f"({shape[0]},)" if len(shape) == 1 else f"({', '.join(map(str, shape))})"


def format_dims(dims: Sequence[int | str] | None) -> str:
    """Returns launch dimensions as `32x16x1`, `-` for a target without them."""
    return "x".join(map(str, dims or ())) or "-"


def star_ambient(names: Iterable[str], ambient: Collection[str]) -> str:
    """Returns ranges as `rm1*, r4`, the ambient ones with a `*`."""
    return ", ".join(f"{name}*" if name in ambient else name for name in names)


def label_side(side: "Capture | Side | SuiteSide") -> list[str]:
    """Returns the snippet of a side, its target, and the versions."""
    versions, observed = side.versions, ", observed" if side.mode == "observe" else ""
    commit = format_known(" ({})", versions.commit and shorten_commit(versions.commit))
    tinygrad = f"tinygrad {versions.tinygrad}{commit}{observed}"
    return [side.snippet, f"target {side.target}", tinygrad, f"Python {versions.python}", f"vmapdbg {versions.vmapdbg}"]


def compare_sides(before: "Side | SuiteSide", after: "Side | SuiteSide") -> dict[str, list[str]]:
    """Returns what is said of `before` and of `after` alone, and of `both`: files, settings, versions, patches."""
    left, right = label_side(before), label_side(after)
    both = [label for label in left if label in right]
    if on := [name for name, state in after.patches.items() if state and before.patches.get(name, False)]:
        both.append(f"patches on {', '.join(on)}")
    only_before = [label for label in left if label not in right]
    only_after = [label for label in right if label not in left]
    only_before += label_patches(before.patches, after.patches)
    only_after += label_patches(after.patches, before.patches)
    if before.name != after.name:
        only_before, only_after = [before.name, *only_before], [after.name, *only_after]
    return {"before": only_before, "after": only_after, "both": both}


def label_patches(states: Mapping[str, bool], others: Mapping[str, bool]) -> Iterator[str]:
    """Yields `patches on ...` and `patches off ...`: the patches that both sides switch differently (unnamed: off)."""
    for word, state in (("on", True), ("off", False)):
        names = [name for name in {**states, **others} if states.get(name, False) == state != others.get(name, False)]
        if names:
            yield f"patches {word} {', '.join(names)}"


def compare_totals(before: "Totals", after: "Totals") -> Iterator[tuple[str, str, str, str]]:
    """Yields the totals that differ: name, before, after, ratio or nothing. Time in kernels needs both sides timed."""
    for label, name, write in (
        ("kernels", "kernels", str),
        ("copies", "copies", str),
        ("executed ops", "executed_ops", round_count),
        ("moved", "bytes", format_bytes),
        ("buffers", "buffer_bytes", format_bytes),
        ("LOCAL", "local_bytes", format_bytes),
        ("threads", "threads", round_count),
        ("time in kernels", "seconds", format_seconds),
    ):
        one, other = getattr(before, name), getattr(after, name)
        has_ratio = name in ("executed_ops", "bytes", "buffer_bytes", "seconds")
        ratio = format_ratio(one or 0, other or 0) if has_ratio else ""
        if one != other and None not in (one, other):
            yield label, write(one), write(other), ratio


# *** facts of a kernel

_VERBS = {"write": "writes", "read-write": "updates", "read": "reads"}


def describe_times(kernel: Kernel) -> str:
    """Returns `20.1 us, median of 5 launches, 19.8 us to 31.0 us (the first 31.0 us)`, nothing if it was not timed."""
    measured = kernel.measured
    if measured is None:
        return ""
    said = format_seconds(measured.median)
    if measured.launches > 1:
        least, most = format_seconds(measured.least), format_seconds(measured.most)
        said += f", median of {measured.launches:,} launches, {least} to {most}"
    if measured.launches > 1 and measured.first is not None:
        said += f" (the first {format_seconds(measured.first)})"
    return said


def list_facts(kernel: Kernel) -> dict[str, list[str]]:
    """Returns a kernel's buffers by access, and its launch. An empty value keeps its place in a list."""
    facts: dict[str, list[str]] = {verb: [] for verb in _VERBS.values()}
    for buffer in kernel.buffers:
        values = facts.setdefault(_VERBS.get(buffer.access, buffer.access), [])
        values.append(f"{buffer.name} ({buffer.size:,} {buffer.dtype})")
    if kernel.failed is None:
        facts["launch"] = [
            f"global {format_dims(kernel.global_size)}",
            f"local {format_dims(kernel.local_size)}",
            format_known("LOCAL {:,} B", kernel.local_bytes or None),
            "" if kernel.launches == 1 else f"launched {kernel.launches:,} times",
        ]
    return facts


def compare_facts(before: Kernel, after: Kernel) -> Iterator[tuple[str, str, str]]:
    """Yields (name, before, after) for each fact that differs; `none` for a kernel that does not have it."""
    left, right = list_facts(before), list_facts(after)
    for name in {**left, **right}:
        for one, other in zip_longest(left.get(name, ()), right.get(name, ()), fillvalue=""):
            if one != other:
                yield name, one or "none", other or "none"


class Places:
    """Short names for `file:number` places: the shortest end that no other file has. `full` maps them to paths."""

    def __init__(self, places: Iterable[str | None], snippet: str) -> None:
        files = {split_place(place)[0] for place in places if place is not None}
        self._short = {file: _shorten(file, files) for file in sorted(files)}
        self._snippet = snippet
        self.full = {short: file for file, short in self._short.items() if short != file}

    @classmethod
    def of(cls, capture: Capture) -> "Places":
        """Returns the short names of all places in a capture."""
        return cls(list_places(capture), capture.snippet)

    def format(self, place: str | None, form: str = "{}", *, brief: bool = False) -> str:
        """Returns a place, short, in `form`; nothing for None. With `brief`, `:number` for a place in the snippet."""
        if place is None:
            return ""
        file, number = split_place(place)
        name = "" if brief and file == self._snippet else self._short.get(file, file)
        return form.format(name + format_known(":{}", number))

    def format_all(self, places: Iterable[str]) -> str:
        """Returns several places by file, lines in order: `a.py:9, 12; b.py:3`."""
        lines: dict[str, set[str]] = {}
        for place in places:
            file, number = split_place(place)
            lines.setdefault(self._short.get(file, file), set()).add(format_known("{}", number))
        named = [f"{file}:{', '.join(sorted(lines[file], key=lambda n: (len(n), n)))}" for file in sorted(lines)]
        return "; ".join(named)

    def format_function(self, name: str, repeats: int) -> str:
        """Returns the name of a row of the tree of functions: `Blk.__call__ > a.py:3 (x4)`."""
        return " > ".join(map(self.format, name.split(" > "))) + f" (x{repeats})" * (repeats > 1)

    def format_first(self, places: Sequence[str], most: int) -> str:
        """Returns the first places as `format_all` does, and how many more there are."""
        return self.format_all(places[:most]) + format_known(" and {} more", max(len(places) - most, 0) or None)


def list_places(capture: Capture) -> list[str]:
    """Returns every line of the user that a capture names, each once."""
    places = [*(finding.line for finding in capture.findings), capture.error and capture.error.line]
    for schedule in capture.schedules:
        places += (schedule.line, *(node.line for node in schedule.nodes))
        places += (line for kernel in schedule.kernels for line in kernel.lines)
    return [place for place in dict.fromkeys(places) if place is not None]


def _shorten(file: str, files: set[str]) -> str:
    parts = PurePosixPath(file).parts
    others = [PurePosixPath(other).parts for other in files if other != file]
    for length in range(1, len(parts)):
        if all(other[-length:] != parts[-length:] for other in others):
            return "/".join(parts[-length:])
    return file
