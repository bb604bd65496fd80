"""Rules about wrong values: the elements that kernels access, their loops, and the order of reads and writes."""

from collections.abc import Iterator
from math import prod

from vmapdbg.lint.rule import advise_on, advise_why, each_access, each_kernel, kernel_finding, node_finding, rule, why
from vmapdbg.model import capture as model
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.wording import format_known, format_plural, inflect


@rule("VD101", "overlapping stores", "error")
def find_overlapping_stores(capture: model.Capture, baseline: model.Capture | None) -> Iterator[model.Finding]:
    """A kernel stores inside a loop, or in each of several threads or launches, and the address of the store does not
    use that loop. So every step writes to the same element, and only the last value survives. This is how a vmap scope
    loses its batch: every row of the result is the row of the last batch element. No error is raised.

    The rule also finds stores whose address uses every loop but repeats: a stride that is too small, or two loops that
    count the same elements.

    How it decides: in the linear program, a loop counts as lost if neither the address nor the gate of a store is
    computed from it, directly or through a load, but the stored value is. It is also lost if the gate lets only the
    first of some threads through, and each of them has another value to store. If all loops are used, the rule counts
    the elements that the stores reach; if they cannot be counted exactly, it reports nothing. In LOCAL memory only the
    threads of one group count, because each step of a loop may use that memory again.

    What to try: a buffer inside a scope must close the ambient ranges (patch ambient-ranges; for nested scopes also
    nested-ranges). `vmapdbg why NODE` shows the ranges of the buffer's node."""
    for schedule, number, kernel, access in each_access(capture):
        message = _explain_store(schedule, kernel, access)
        if message is not None:
            advice = _advise_ranges(capture, schedule, next(iter(kernel.outputs), None))
            yield kernel_finding("VD101", schedule, number, message, advice, access.source_line)
    for schedule in capture.schedules:
        if not schedule.kernels:
            yield from _find_unscheduled(capture, schedule)


def _explain_store(schedule: model.Schedule, kernel: model.Kernel, access: model.Access) -> str | None:
    if access.kind != "store":
        return None
    if access.lost:
        return _explain_lost(schedule, kernel, access)
    if access.addrspace != "GLOBAL" or access.stores is None or access.elements in (None, access.stores):
        return None
    # a kernel that reads what it writes may add to it step by step
    if ("load", access.buffer) in ((other.kind, other.buffer) for other in kernel.accesses or ()):
        return None
    stores, elements = format_plural(access.stores, "value"), format_plural(access.elements, "element")
    overwritten = format_plural(access.stores - access.elements, "value is", "values are")
    return (
        f"kernel {kernel.name} stores {stores} to {elements} of {access.buffer}: {overwritten} overwritten "
        f"(address {access.address})"
    )


def _explain_lost(schedule: model.Schedule, kernel: model.Kernel, access: model.Access) -> str:
    names = " and ".join(_name_range(schedule, kernel, loop) for loop in access.lost)
    total = prod(loop.size for loop in access.lost)
    it = inflect(len(access.lost), "it", "them")
    kinds = {loop.kind for loop in access.lost}
    if kinds == {"loop"}:
        runs, survives = f"loops over {names}", f"one of {total:,} iterations"
    elif kinds == {"launch"}:
        runs, survives = f"is launched for each step of {names}", f"the last of {total:,} launches"
    else:
        # threads have no order
        runs, survives = f"runs threads over {names}", f"one of {total:,} threads"
    return f"kernel {kernel.name} {runs} but its store to {access.buffer} does not use {it}: only {survives} survives"


def _name_range(schedule: model.Schedule, kernel: model.Kernel, loop: model.Loop) -> str:
    """Returns `rm1 (3, Lidx2 in the source)` if the buffer lost exactly one range of this size, else `Lidx2 (3)`."""
    index = index_of(schedule)
    made = filter(None, map(index.bufferizes.get, kernel.outputs))
    alike = [name for name in index.find_lost(next(made, None)) if index.size_of(name) == loop.size]
    if len(alike) != 1:
        return f"{loop.name} ({loop.size:,})"
    return f"{alike[0]} ({loop.size:,}, {loop.name} in the source)"


def _advise_ranges(capture: model.Capture, schedule: model.Schedule, node: int | None) -> str:
    patches = advise_on(capture, "ambient-ranges", "nested-ranges")
    if patches is not None and any(item.vmap for item in schedule.ranges):
        return patches
    if node is None:
        return "look at the store in its source"
    return f"{why(schedule, node)} (the ranges its buffer closes)"


def _find_unscheduled(capture: model.Capture, schedule: model.Schedule) -> Iterator[model.Finding]:
    """Checks the buffers of a schedule that failed before it had kernels. Ranges left open belong to VD107."""
    if capture.error is None and not any(item.kernels for item in capture.schedules):
        return
    index = index_of(schedule)
    for bufferize in schedule.bufferizes:
        lost = [name for name in index.find_lost(bufferize) if name not in bufferize.left_open]
        node = index.node(bufferize.node)
        if not lost or node is None:
            continue
        message = (
            f"the buffer of node {node.id} {node.op} does not close {', '.join(lost)}, which its value depends on: "
            f"only one iteration would survive"
        )
        advice = _advise_ranges(capture, schedule, node.id)
        yield node_finding("VD101", schedule, node.id, message, advice)


@rule("VD105", "address outside of its buffer", "error")
def find_outside(capture: model.Capture, baseline: model.Capture | None) -> Iterator[model.Finding]:
    """A load or a store of a kernel has an address outside of its buffer in some step of its loops. It reads or
    overwrites the memory of another buffer, or the process crashes.

    How it decides: for every step of every loop and thread in which the gate of the access is true. The bounds of each
    independent part of the address are exact. An address with loaded values or a variable is checked only if the gate
    bounds it.

    The rule also checks the ranges of the nodes. An index that leaves its axis wraps around when the axes become one
    address, so the kernel reads another element of the same buffer.

    What to try: look at the ranges that the address is computed from. Typical causes are the lost valid of a PAD or
    SHRINK, a stride or an order of ranges that differs between the buffer and its reader, and a buffer that is too
    short."""
    # wrong ranges give wrong addresses: the ranges name the node, so the address is not reported again
    explained: set[tuple[int, int | None]] = set()
    for schedule in capture.schedules:
        for finding in _find_wrong_ranges(schedule):
            explained.add((schedule.index, finding.number))
            yield finding
    for schedule, number, kernel, access in each_access(capture):
        worst = _find_worst(access.lowest, access.highest, access.size)
        if worst is None or (schedule.index, number) in explained:
            continue
        verb = "stores to" if access.kind == "store" else "loads"
        elements, gate = format_plural(access.size, "element"), format_known(" where {}", access.gate)
        message = (
            f"kernel {kernel.name} {verb} element {worst} of {access.buffer}, which has {elements}: its address "
            f"{access.address}{gate} goes from {access.lowest} to {access.highest}"
        )
        advice = advise_why(schedule, kernel, "compare the address with the ranges of the node")
        yield kernel_finding("VD105", schedule, number, message, advice, access.source_line)


def _find_wrong_ranges(schedule: model.Schedule) -> Iterator[model.Finding]:
    """Yields a finding for each index that leaves its axis. Sources inherit ranges, so only the last node is named."""
    wrong = {node.id: node for node in schedule.nodes if node.outside and node.src}
    followed = {s for node in wrong.values() for s in node.src}
    causes = [node for node in wrong.values() if node.id not in followed]
    for node in causes:
        yield _explain_range(schedule, node, node.outside[0], f"its source (node {node.src[0]})")
    index = index_of(schedule)
    above = index.find_sources([node.id for node in causes])
    for bufferize in schedule.bufferizes:
        node = index.node(bufferize.node)
        if bufferize.outside and node is not None and node.id not in above:
            yield _explain_range(schedule, node, bufferize.outside[0], "its buffer", "a reader of ")


def _explain_range(
    schedule: model.Schedule, node: model.Node, outside: model.Outside, what: str, who: str = ""
) -> model.Finding:
    worst = _find_worst(outside.lowest, outside.highest, outside.size)
    elements = format_plural(outside.size, "element")
    message = (
        f"{who}node {node.id} {node.op} takes element {worst} of axis {outside.axis} of {what}, which has {elements} "
        f"there: its range {outside.range} goes from {outside.lowest} to {outside.highest}"
    )
    number = next(iter(index_of(schedule).computing[node.id]), None)
    return node_finding("VD105", schedule, node.id, message, f"{why(schedule, node.id)} (its ranges)", number)


def _find_worst(lowest: int | None, highest: int | None, size: int) -> int | None:
    """Returns the end of an address that is outside of the buffer, None if neither is or they are unknown."""
    if lowest is None or highest is None:
        return None
    if highest >= size:
        return highest
    return lowest if lowest < 0 else None


@rule("VD106", "elements never written", "error")
def find_unwritten(capture: model.Capture, baseline: model.Capture | None) -> Iterator[model.Finding]:
    """The schedule created a buffer and one kernel writes it, but not all of it. The rest of the buffer has old data.

    How it decides: it counts the elements that the stores of the kernel reach over all steps of its loops, its threads
    and its launches. Buffers that are written in part on purpose (an assign to a slice of a tensor) are not new and are
    not checked, and neither are shapes with a variable. If the elements are too many to count, the rule only reports
    kernels with fewer stores than elements.

    What to try: a range of the buffer is missing in the kernel, or is too short; `vmapdbg why NODE` shows them."""
    for schedule, number, kernel, access in each_access(capture):
        if not kernel.fresh or access.kind != "store" or access.addrspace != "GLOBAL":
            continue
        # there are at most as many elements as stores
        written = access.elements or access.stores
        if written is None or (access.missing is None and written >= access.size):
            continue
        elements = format_plural(access.size, "element")
        missing = format_known(": element {} is never written", access.missing)
        message = f"kernel {kernel.name} writes {written:,} of the {elements} of {access.buffer}{missing}"
        advice = "look for a range of the buffer that the kernel lacks, or that is too short"
        advice = advise_why(schedule, kernel, advice)
        yield kernel_finding("VD106", schedule, number, message, advice, access.source_line)


@rule("VD107", "range left open", "error")
def find_open_ranges(capture: model.Capture, baseline: model.Capture | None) -> Iterator[model.Finding]:
    """The value of a buffer depends on a range that the store into the buffer does not close: no loop runs it. tinygrad
    then fails with "input to kernel must be AFTER or BUFFER, not Ops.INDEX", or makes a program with a loop that has no
    end.

    How it decides: by the ranges of each store into a GLOBAL buffer that the store does not end. OUTER ranges stay open
    on purpose, because the schedule runs them. LOCAL buffers are inside the loops around them.

    What to try: turn on close-ranges, which closes every open range of a stored value. Or the value should not depend
    on the range: `vmapdbg why NODE` shows where it comes from."""
    for schedule in capture.schedules:
        for bufferize in schedule.bufferizes:
            if bufferize.left_open and bufferize.holds_memory:
                yield _explain_open(capture, schedule, bufferize)
    for schedule, number, kernel in each_kernel(capture):
        if kernel.open_loops:
            message = f"kernel {kernel.name} opens {', '.join(kernel.open_loops)} and never ends it"
            advice = _advise_closing(capture, schedule, next(iter(kernel.outputs), None))
            yield kernel_finding("VD107", schedule, number, message, advice)


def _explain_open(capture: model.Capture, schedule: model.Schedule, bufferize: model.Bufferize) -> model.Finding:
    index = index_of(schedule)
    count, opened = len(bufferize.left_open), ", ".join(bufferize.left_open)
    what, it = inflect(count, f"range {opened} is", f"ranges {opened} are"), inflect(count, "it", "them")
    message = (
        f"{what} left open: node {bufferize.node} {index.op(bufferize.node)} is stored to a buffer, its value depends "
        f"on {it}, and no loop around the store runs {it}"
    )
    number, _ = index.writers.get(bufferize.node, (None, None))
    advice = _advise_closing(capture, schedule, bufferize.node)
    return node_finding("VD107", schedule, bufferize.node, message, advice, number)


def _advise_closing(capture: model.Capture, schedule: model.Schedule, node: int | None) -> str:
    advice = "look at the kernel's source" if node is None else f"{why(schedule, node)} (where the range comes from)"
    return advise_on(capture, "close-ranges", "ambient-ranges", "nested-ranges") or advice


@rule("VD108", "accumulator reset", "error")
def find_resets(capture: model.Capture, baseline: model.Capture | None) -> Iterator[model.Finding]:
    """A reduce adds to a register in a loop. The register should be initialised before the loop and read after it. Here
    the kernel initialises it inside the loop: each step forgets the earlier steps, and only the last step is read. A
    softmax then does not sum to one. No error is raised.

    How it decides: in the linear program, the loop stores a value to a register that does not depend on the register.
    Then it adds a value that the loop changes, both at an address that the loop does not change. After the end of the
    loop, a load reads the sum. A register that is read only inside the loop is not reported.

    What to try: the cause is the order in which tinygrad lowers a kernel with several reduces. 0.14.0 does it with
    PCONTIG=2. Another PCONTIG, or a `.contiguous()` in front of the reduce, makes several kernels of it."""
    for schedule, number, kernel in each_kernel(capture):
        for reset in kernel.resets:
            steps = format_plural(prod(loop.size for loop in reset.loops), "step")
            names = ", ".join(loop.name for loop in reset.loops)
            adding = inflect(len(reset.loops), "loop that adds", "loops that add")
            message = (
                f"kernel {kernel.name} initialises {reset.buffer} in each step of the {adding} to it ({names}, "
                f"{steps}): only the last step is left in it"
            )
            advice = advise_why(schedule, kernel, "put .contiguous() in front of the reduce, or set another PCONTIG")
            yield kernel_finding("VD108", schedule, number, message, advice, reset.source_line)


@rule("VD109", "wrong order of a read and a write", "error")
def find_wrong_order(capture: model.Capture, baseline: model.Capture | None) -> Iterator[model.Finding]:
    """A value is computed from a tensor, and later something is assigned to the tensor: the value should use the old
    contents. But its kernel runs after the kernel of the assign, in the same schedule, and reads the new contents. Or
    the opposite: a value that comes after the assign uses the old contents. No error is raised.

    How it decides: it compares the graph before scheduling with the order of the kernels. From the graph it knows which
    writes the kernel's part comes after; from the kernels, which of them have written the memory by then. The two
    kernels must touch the same elements: the writing kernel stores to all elements between two bounds, and the elements
    that are read are between them. Schedules on several devices, custom kernels and copies are not checked.

    What to try: realize the value before the assign, or make it `.contiguous()`; or realize the assign by itself."""
    for schedule, number, kernel in each_kernel(capture):
        for found in kernel.wrong_times:
            message = _explain_order(schedule, kernel, found)
            if message is not None:
                advice = advise_why(schedule, kernel, "realize the value, or the assign, by itself")
                yield kernel_finding("VD109", schedule, number, message, advice)


def _explain_order(schedule: model.Schedule, kernel: model.Kernel, found: model.WrongTime) -> str | None:
    """Returns what is wrong with the order, None if it is not certain that anything is."""
    memory = f"{index_of(schedule).op(found.node)} {found.node}"
    for number in (*found.early, *found.late):
        writer = schedule.kernels[number]
        if not _touch_same_elements(writer, kernel, found):
            continue
        order, holds = f"before kernel {writer.name} #{number} writes it", "holds then"
        if number in found.early:
            order, holds = f"after kernel {writer.name} #{number} has written it", "held before"
        return f"kernel {kernel.name} reads {found.buffer} {order}: the graph asks for what {memory} {holds}"
    return None


def _touch_same_elements(writer: model.Kernel, reader: model.Kernel, found: model.WrongTime) -> bool:
    """True if `writer` certainly writes elements that `reader` reads."""
    first = next((buffer.name for buffer in writer.buffers), None)
    stores = [one for one in writer.accesses or () if (one.kind, one.buffer) == ("store", first)]
    if len(stores) != 1:
        return False
    lowest, highest, elements = stores[0].lowest, stores[0].highest, stores[0].elements
    # it writes every element between its bounds
    if lowest is None or highest is None or elements != highest - lowest + 1:
        return False
    loads = [one for one in reader.accesses or () if (one.kind, one.buffer) == ("load", found.buffer)]
    # of an unknown address it is certain that it is in the buffer
    read = [(one.lowest or 0, one.size - 1 if one.highest is None else one.highest) for one in loads]
    return any(lowest <= first and last <= highest for first, last in read)


@rule("VD110", "overwritten input", "error")
def find_overwritten_inputs(capture: model.Capture, baseline: model.Capture | None) -> Iterator[model.Finding]:
    """An output of the schedule has the memory of one of its inputs, but nothing in the graph assigns to that input.
    When the kernel has run, the input tensor has changed. No error is raised.

    How it decides: by the memory that each kernel gets as its first argument. It is a BUFFER or PARAM of the graph
    before scheduling, and no ASSIGN or STORE of the graph writes to it. Schedules on several devices and custom kernels
    are not checked.

    What to try: in 0.12, an output gets the memory of an input if it equals that input except for a DETACH, or if it is
    a constant that was folded from the input (x - x). `.contiguous()` gives it memory of its own."""
    for schedule, number, kernel in each_kernel(capture):
        if kernel.overwrites is None:
            continue
        index = index_of(schedule)
        written = ", ".join(f"{index.op(node)} {node}" for node in kernel.outputs) or "its value"
        memory = f"{index.op(kernel.overwrites)} {kernel.overwrites}"
        message = f"kernel {kernel.name} writes {written} to the memory of {memory}, which nothing assigns to"
        advice = advise_why(schedule, kernel, "give the output memory of its own (.contiguous())")
        yield kernel_finding("VD110", schedule, number, message, advice)


@rule("VD113", "race between threads", "error")
def find_races(capture: model.Capture, baseline: model.Capture | None) -> Iterator[model.Finding]:
    """Two threads of a kernel access the same element, at least one of them stores to it, and nothing orders the two.
    What the other one reads is chance: often right, and wrong on another GPU or under load.

    How it decides: in the linear program. LOCAL memory belongs to the threads of one group: between a store and another
    access there must be a barrier, also from one step of a loop around both to the next. GLOBAL memory that a kernel
    stores and loads belongs to all threads, which no barrier orders. The addresses of all threads are computed; if each
    element has only one thread, there is no race. If the steps are too many, a part of them is computed: a race in it
    is certain, and a kernel without one is counted as undecided. So are kernels whose addresses are loaded or have
    variables: `vmapdbg check` computes them from what a launch loaded. Threads that all store to one element are VD101.

    What to try: a barrier is missing in what tinygrad makes of the kernel. A `.contiguous()` in front of the reduce
    that uses the LOCAL memory, or NOOPT=1, makes other kernels."""
    for schedule, number, kernel in each_kernel(capture):
        for race in kernel.races:
            advice = advise_why(schedule, kernel, "look for the barrier in its source")
            message = describe_race(kernel.name, race)
            yield kernel_finding("VD113", schedule, number, message, advice, race.source_line)


def describe_race(name: str, race: model.Race) -> str:
    """Returns a sentence about a race in the kernel `name`."""
    first, second = (f"{kind}s" for kind in race.kinds)
    when = format_known(" in the next step of {}", race.repeated)
    one, other = (f"thread {thread:,}" for thread in race.threads)
    return (
        f"kernel {name}: {one} {first} element {race.element:,} of {race.buffer}, {other} {second} it{when}, and no "
        "barrier is between"
    )
