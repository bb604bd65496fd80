"""Edits worth trying: values computed too often, by the time that storing may save, or for memory by the bytes read."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping

from vmapdbg.install.job import Job
from vmapdbg.install.patches import spell_patches
from vmapdbg.model.capture import Capture, Kernel, Node, Schedule
from vmapdbg.model.ops import ELEMENTWISE, REDUCES
from vmapdbg.model.schedule_index import count_elements, find_times, index_of, sum_times
from vmapdbg.model.wording import split_place
from vmapdbg.tune.edits import STORE, STORE_GRADIENT, Edit, Source
from vmapdbg.values.tolerance import ITEMSIZE, spell_dtype

PATCHES = "--patches "
# about how many instructions an op is on a CPU; others are one
_WEIGHTS = {"SIN": 40, "EXP2": 20, "LOG2": 20, "THREEFRY": 100, "POW": 60, "SQRT": 5, "RECIPROCAL": 5, "FDIV": 5}
_LEAST_GAIN = 0.01  # the share of the whole that an edit must promise
_UNKNOWN_GAIN = 0.05
"""The promise of an edit whose effect nothing predicts: no store where there is one, switches, patches."""
_LONG = 32  # a reduce that is a cumsum of fewer elements is left alone
_SWITCHABLE = ("fuse-broadcast", "fusion-guard", "realize-reused", "whole-gathers")
_SWITCHES = ("PCONTIG=2", "SPLIT_REDUCEOP=0")


Candidate = tuple[float, tuple[Edit, ...]]
"""Edits that are tried together, and the share of the whole, 0 to 1, that they may save."""
Place = tuple[str, str | None, bool]  # a line, the method of Tensor called there, and whether it is about the gradient


def list_candidates(capture: Capture, sources: Mapping[str, Source], by: str) -> list[Candidate]:
    """Returns the edits that may help, the most promising first: single edits, and all edits of a line together."""
    gains: dict[Edit, float] = defaultdict(float)
    for (line, method, is_gradient), gain in _rank_places(capture, by).items():
        file, number = split_place(line)
        for node in sources[file].find_values(number or 0, method) if file in sources else ():
            edit = sources[file].store(node, STORE_GRADIENT if is_gradient else STORE)
            gains[edit] = max(gains[edit], gain)
    for line, gain in (_rank_scans(capture) if by == "time" else {}).items():
        file, number = split_place(line)
        for node in sources[file].find_values(number or 0, "cumsum") if file in sources else ():
            gains |= dict.fromkeys(sources[file].split_scan(node), gain)
    lines: dict[tuple[str, str], list[Edit]] = defaultdict(list)
    for edit in sorted(gains, key=lambda edit: -gains[edit]):
        together = lines[edit.line, edit.label.partition(" ")[0]]
        if not any(map(edit.overlaps, together)):
            together.append(edit)
    for source in sources.values():
        numbers = {number or 0 for file, number in map(split_place, list_lines(capture)) if file == source.file}
        gains |= dict.fromkeys(source.list_stores(numbers), _UNKNOWN_GAIN)
    sets = {(edit,) for edit in gains} | {tuple(sorted(edits)) for edits in lines.values()}
    found = [(sum(gains[edit] for edit in edits), edits) for edits in sets]
    return sorted((one for one in found if one[0] >= _LEAST_GAIN), key=lambda one: (-one[0], one[1]))


def list_switches(job: Job) -> list[Candidate]:
    """Returns other ways to run the program: without or with a patch of the overlay, else with a switch of tinygrad."""
    ways = list(_SWITCHES)
    if job.patches is not None:
        specs = [spell_patches(job.patches ^ {patch}) for patch in _SWITCHABLE]
        ways = [f"{PATCHES}{spec}" for spec in dict.fromkeys([*specs, "none"]) if spec != spell_patches(job.patches)]
    return [(_UNKNOWN_GAIN, (Edit(label=way, new=way),)) for way in ways]


def list_lines(capture: Capture) -> list[str]:
    """Returns the user's lines that made nodes: no code that was typed, and no installed packages."""
    lines = dict.fromkeys(node.line or "" for one in capture.schedules for node in one.nodes)
    return [line for line in lines if line and not line.startswith("<") and "site-packages" not in line]


def _share_time(capture: Capture) -> dict[str, float]:
    """Returns source -> the share of the time that a kernel with it takes."""
    seconds = {source: sum_times(one) for source, one in find_times(capture.kernels).items()}
    # kernels with the same source were timed together
    counts = Counter(kernel.source for kernel in capture.kernels)
    whole = sum(seconds.values()) or 1.0
    return {source: one / whole / counts[source] for source, one in seconds.items()}


def _rank_scans(capture: Capture) -> dict[str, float]:
    """Returns for each line with a long cumsum the share of the time of kernels that compute it as a reduce."""
    shares, found = _share_time(capture), defaultdict[str, float](float)
    for schedule in capture.schedules:
        index = index_of(schedule)
        for kernel in schedule.kernels:
            sums = (node for node in map(index.node, kernel.nodes) if node and node.method == "cumsum")
            long = (n for n in sums if n.op in REDUCES and index.count_reduced(n) >= _LONG * count_elements(n.shape))
            for line in {node.line for node in long if node.line is not None}:
                found[line] += shares.get(kernel.source, 0.0)
    return found


def _rank_places(capture: Capture, by: str) -> dict[Place, float]:
    """Returns the share of the time, for memory of the largest saving, that storing the value of a place may save."""
    shares = _share_time(capture)
    found: dict[Place, float] = defaultdict(float)
    for schedule in capture.schedules:
        costs: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for kernel in schedule.kernels:
            share = shares.get(kernel.source, 0.0)
            if by == "memory" or share >= _LEAST_GAIN:
                for number, cost in _measure_work(schedule, kernel, share if by == "time" else None).items():
                    costs[number].append(cost)
        best: dict[Place, float] = defaultdict(float)
        for number, each in costs.items():
            node = index_of(schedule).nodes[number]
            if node.line is not None:
                place = node.line, node.method, node.phase == "backward"
                # it is computed once more, for the store
                best[place] = max(best[place], sum(saved for saved, _ in each) - max(once for _, once in each))
        for place, gain in best.items():
            found[place] += gain
    most = max(found.values(), default=1.0) if by == "memory" else 1.0
    return {place: gain / max(most, 1.0) for place, gain in found.items()}


def _measure_work(schedule: Schedule, kernel: Kernel, share: float | None) -> dict[int, tuple[float, float]]:
    """Returns for each value inside a kernel, by node id, what its reader saves, and the cost of computing each element
    once: parts of the kernel's `share` of the time; if None, bytes of its source buffers, and its own. A source is
    computed as often as its reader, in a reduce for each number added. Both are upper bounds, to rank by: a loop does
    not compute again what it does not change."""
    index, inside = index_of(schedule), set(kernel.nodes)
    times: dict[int, float] = defaultdict(float, {number: _size(index.nodes[number]) for number in kernel.outputs})
    # readers have larger ids than their sources
    for number in sorted(inside, reverse=True):
        node = index.nodes[number]
        for source in inside.intersection(node.src).difference(kernel.outputs):
            factor = _size(index.nodes[source]) / _size(node) if node.op in REDUCES else 1
            times[source] = max(times[source], times[number] * factor)
    computed = {number for number in inside if index.nodes[number].op in ELEMENTWISE | REDUCES}
    own = {number: times[number] * _WEIGHTS.get(index.nodes[number].op, 1) for number in computed}
    scale = (share or 0.0) / max(sum(own.values()), 1)
    below: dict[int, frozenset[int]] = {}
    found: dict[int, tuple[float, float]] = {}
    for number in sorted(inside):
        node = index.nodes[number]
        below[number] = frozenset({number}).union(*(below[source] for source in node.src if source in inside))
        if number in own and number not in kernel.outputs:
            if share is None:
                read = {s for part in below[number] for s in index.nodes[part].src if s not in inside}
                found[number] = sum(_bytes(index.nodes[s]) for s in read if s in index.writers), _bytes(node)
            else:
                ops = sum(own.get(part, 0) for part in below[number]) * scale
                # a reader loads it instead
                found[number] = ops - times[number] * scale, ops * _size(node) / max(times[number], 1)
    return found


def _size(node: Node) -> int:
    """Returns the number of elements, at least 1; a symbolic size counts as 1."""
    return max(math.prod(size for size in node.shape or () if isinstance(size, int)), 1)


def _bytes(node: Node) -> int:
    return _size(node) * ITEMSIZE.get(spell_dtype(node.dtype), 4)
