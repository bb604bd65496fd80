"""Keeps what replays of TinyJit were given and left behind, to compare them, in the child. A replay makes no schedule:
the captured graphs with its arguments say what it gives, assigns and must not change, not what it says that it read.

Compared are the first replays, powers of two, the last one, and others if there is time. What the newest replay read
and wrote stays in memory, because it may be the last."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

from vmapdbg.check.result import UnwrittenRead
from vmapdbg.child.evidence import jit_call
from vmapdbg.child.evidence.evidence import (
    BlobsFull,
    EarlierCall,
    Evidence,
    EvidenceFolder,
    HeldBuffer,
    HeldContents,
    list_parts,
)
from vmapdbg.child.evidence.packer import CannotPack
from vmapdbg.child.evidence.realize_call import RealizeCall
from vmapdbg.child.evidence.tensor_calls import Owners, list_owners, list_pending, live_tensors
from vmapdbg.child.identity import IdentityMap
from vmapdbg.child.listen.launches import source_of
from vmapdbg.child.listen.releases import list_writes, memory_of
from vmapdbg.child.listen.user_lines import find_user_line
from vmapdbg.child.memory import name_dtype
from vmapdbg.model.account import Left
from vmapdbg.model.wording import first_line
from vmapdbg.reference.graph import OpGraph, OpNode

UOp = Any
_Names = tuple[str, ...]
_SHARE = 0.1
"""The most of a program's time that its process spends on replays that are compared only because there is time."""


class Replay:
    """A replay that may be compared, with all that it can read."""

    def __init__(self, known: jit_call.JitCall, given: jit_call.Given, folder: EvidenceFolder):
        """Begins a replay. Raises CannotPack if it cannot be compared, and BlobsFull."""
        self.known, self.given, self.graph = known, given, known.open(given)
        self.line, self.number, self.test = find_user_line(), known.account.replays, folder.find_test()
        self.contents = HeldContents(folder.room)  # all contents that are named
        # BUFFER of the captured call -> the BUFFER of an input now, and the BUFFER that Tensors have now
        self.now = {u: given.inputs[path] for path, u in known.given.inputs.items()}
        # the number of an input, in tinygrad's order: arguments before their items; the first, if it is given twice
        paths = sorted(known.given.inputs, key=len)
        self.numbers = {known.given.inputs[path]: number for number, path in reversed(list(enumerate(paths)))}
        self.state = known.find_state()
        # what BUFFERs held before it; BUFFERs in `watched` must not change without an assign in the graph
        self.before = self._keep_reads("before")
        self.watched = self.before | self._keep(u for u in self._list_watched() if u not in self.before)
        self.past = known.past
        if self.number:
            known.past = [known.past[0], self._describe_given()]

    def _describe_given(self) -> jit_call.PastCall:
        """Returns what it was given, as far as it reads that."""
        read: dict[UOp, tuple[bytes, ...]] = {}
        if jit_call.choose_kept(self.now.values()):
            read = {was: self.contents.read(self.before[now]) for was, now in self.now.items() if now in self.before}
        return jit_call.PastCall(self.number, read, self.given.variables)

    def _find(self, u: UOp) -> UOp:
        """Returns the BUFFER that a replay has in the place of a BUFFER of the captured call."""
        return self.now.get(u, u)

    def _find_read(self, u: UOp, time: str) -> UOp:
        """Returns the BUFFER that a replay should read at a time in the place of a BUFFER of the captured call."""
        return self.state.get(u, self._find(u)) if time == "before" else self._find(u)

    def _keep_reads(self, time: str) -> dict[UOp, _Names]:
        """Keeps what its schedules read at this time: `before` it or `after` it. Raises BlobsFull."""
        reads = (read for schedule in self.graph.schedules for read in schedule.reads.values())
        return self._keep(self._find_read(u, time) for u, read_at in reads if read_at == time)

    def _keep(self, memory: Iterable[UOp]) -> dict[UOp, _Names]:
        """Keeps what BUFFERs hold now that have memory. Raises BlobsFull."""
        known = [u for u in dict.fromkeys(memory) if all(part.is_allocated() for part in list_parts(u.buffer))]
        return {u: self.contents.keep_all(u.buffer) for u in known}

    def _list_watched(self) -> Iterator[UOp]:
        """Yields the inputs, and the BUFFERs of Tensors in the memory of the replay, that nothing in it writes."""
        bases = self.known.list_bases()
        live = {tensor.uop.base for tensor in live_tensors() if tensor.uop.base.op.name == "BUFFER"}
        near = [u for u in live if u.is_realized and any(id(part.base) in bases for part in list_parts(u.buffer))]
        yield from (u for u in dict.fromkeys([*self.now.values(), *near]) if not self._does_write(u))

    def _does_write(self, u: UOp) -> bool:
        """Whether its kernels write to a BUFFER, in its own place or in the place of a BUFFER of the captured call."""
        places = (was for was, now in self.now.items() if now is u)
        return any(self.known.does_write(one.buffer) for one in (u, *places))

    def make_evidence(self) -> list[Evidence]:
        """Ends the replay: returns the evidence of each of its schedules. Raises BlobsFull."""
        after = self._keep_reads("after")
        made = [self._make_evidence(index, one, after) for index, one in enumerate(self.graph.schedules)]
        self._keep_watched(made[-1])
        return made

    def _make_evidence(self, index: int, schedule: jit_call.ScheduleGraph, after: Mapping[UOp, _Names]) -> Evidence:
        call = self.known.realized[index]
        evidence = Evidence(call.evidence.schedule, self.line, replay=self.number, variables=self.given.variables)
        evidence.graphs["asked"], evidence.input_numbers = self._fill(schedule, after)
        moved = {id(u.buffer): now.buffer for u, now in self.now.items()}  # an input that is assigned to is an output
        call.keep_outputs(evidence, call.views, self.contents.keep_all, moved, self.given.variables)
        for output in list(evidence.outputs):
            if not self.known.is_final(index, memory_of(call.views[output])):
                del evidence.outputs[output]
                evidence.left.append(Left("outputs", 1, "a later schedule of the call writes it again", output))
        if not evidence.outputs:
            evidence.graphs.pop("got")
        for u, held in schedule.held:
            # a write that is pending when the captured call returns will still be scheduled
            if self.number or held.is_written is None:
                evidence.held.append(replace(held, blobs=self.contents.keep_all(self._find(u).buffer)))
        self._keep_changed(evidence, schedule)
        with suppress(CannotPack):
            earlier = [self._find_earlier(past, index, after) for past in self.past]
            evidence.earlier = [call for call in earlier if call is not None]
        return evidence

    def _fill(self, schedule: jit_call.ScheduleGraph, after: Mapping[UOp, _Names]) -> tuple[OpGraph, dict[int, int]]:
        """Returns the graph of a schedule with what it reads, and the numbers of inputs by their slots."""
        graph = replace(schedule.graph, nodes=list(schedule.graph.nodes), inputs={})
        for slot, (u, time) in schedule.reads.items():
            names = (self.before if time == "before" else after).get(self._find_read(u, time))
            if names is not None:
                graph.inputs[slot] = names
        return graph, {slot: self.numbers[u] for slot, (u, _) in schedule.reads.items() if u in self.numbers}

    def _find_earlier(self, past: jit_call.PastCall, index: int, after: Mapping[UOp, _Names]) -> EarlierCall | None:
        """Returns what an earlier call was given, None if this replay was given the same. Raises CannotPack."""
        now = self.given.variables
        inputs: dict[int, _Names] = {}
        for u, data in past.inputs.items():
            names = self.before.get(self._find(u))
            if names is not None and self.contents.read(names) != data:
                inputs[self.numbers[u]] = tuple(map(self.contents.add, data))
        variables = {name: value for name, value in past.variables.items() if now[name] != value}
        if not inputs and not variables:
            return None
        other = self.known.find_graph(past.variables).schedules[index]
        slots = dict(zip(self.graph.schedules[index].compared, other.compared, strict=True))
        graph, numbers = self._fill(other, after)
        return EarlierCall(past.replay, inputs, variables, graph, numbers, slots)

    def _keep_changed(self, evidence: Evidence, schedule: jit_call.ScheduleGraph) -> None:
        """Keeps buffers that a schedule reads and the replay overwrote without an assign: earlier outputs as inputs."""
        for slot, (u, _) in schedule.reads.items():
            now = self._find(u)
            is_given = not self.known.does_write(u.buffer) and self.known.does_write(now.buffer)
            if is_given and now in self.before and (after := self.contents.keep_all(now.buffer)) != self.before[now]:
                evidence.changed.append(HeldBuffer(slot, after, "input", input_number=self.numbers.get(u)))

    def _keep_watched(self, evidence: Evidence) -> None:
        graph = evidence.graphs["asked"]
        for u, before in self.watched.items():
            if self._does_write(u) or (now := self.contents.keep_all(u.buffer)) == before:
                continue
            slot = graph.add(OpNode("buffer", name_dtype(u.buffer.dtype), (int(u.buffer.size),)))
            graph.inputs[slot] = before
            evidence.held.append(HeldBuffer(slot, now, "input"))


@dataclass
class _Running:
    """A running call of a TinyJit: what it was given (None: not yet known), the pending writes and the Tensors' memory
    then, and its calls of `realize` that made a schedule. `replays_others`: it replayed another TinyJit."""

    tiny: Any
    known: jit_call.JitCall | None
    given: jit_call.Given | None = None
    pending: set[UOp] = field(default_factory=set[UOp])
    owners: Owners = field(default_factory=WeakKeyDictionary)
    realized: list[RealizeCall] = field(default_factory=list)
    replay: Replay | None = None
    replays_others: bool = False


class ReplayWatcher:
    """Watches TinyJit's arguments, captured schedules and replays. `left` gets why nothing is known of a replay."""

    def __init__(self, folder: EvidenceFolder, left: list[Left]) -> None:
        self.folder, self.left = folder, left
        # the source of replays -> the captured call; to hold the source would keep its memory
        self.captured: IdentityMap[jit_call.JitCall] = IdentityMap()
        self.accounts: list[jit_call.ReplayAccount] = []  # also of jits that the program has dropped
        self.calls: list[_Running] = []  # outermost first
        self.unwritten: WeakKeyDictionary[UOp, UnwrittenRead] = WeakKeyDictionary()  # BUFFER of a captured call
        self.failed: IdentityMap[str] = IdentityMap()  # a source -> why its graph is not known
        self._began, self._spent = perf_counter(), 0.0

    def on_call(self, call: Callable[..., Any], tiny: Any, *arguments: Any, **options: Any) -> Any:
        before = tiny.captured
        running = _Running(tiny, self._find_known(tiny))
        if before is not None:
            for outer in self.calls:
                outer.replays_others = True
        self.calls.append(running)
        try:
            result = call(tiny, *arguments, **options)
        finally:
            self.calls.pop()
        if tiny.captured is not before:
            self._note_captured(running)
        elif before is not None and running.known is None:
            reason = self.failed.get(source_of(before), "the jit was captured by another test, or not watched")
            if tiny.fxn is None:
                reason = "the jit was loaded from a pickle: its buffers are copies, and what they mean is not known"
            self.left.append(Left("replays", 1, reason))
        elif running.known is not None and running.given is None:
            running.known.account.replays += 1
            running.known.account.left["its inputs were not seen"] += 1
        if running.replay is not None:
            self._finish(running.replay)
        return result

    def _find_known(self, tiny: Any) -> jit_call.JitCall | None:
        """Returns the call that a TinyJit has captured. None if it is unknown."""
        return None if tiny.captured is None else self.captured.get(source_of(tiny.captured))

    def on_prepare(self, prepare: Callable[..., Any], arguments: Any, options: Any) -> Any:
        """A call realizes its inputs: after that they are known."""
        prepared = prepare(arguments, options)
        running = self.calls[-1] if self.calls else None
        if running is None or running.given is not None:
            return prepared
        running.given = jit_call.Given.of(arguments, options)
        if running.known is not None:
            running.known.account.replays += 1
            self._begin(running, running.known, running.given)
        elif running.tiny.captured is None:
            running.pending = {write for _, _, write in list_pending()}
            running.owners = list_owners()
        return prepared

    def is_captured(self) -> bool:
        """Whether a TinyJit captures what is realized now."""
        from tinygrad.engine.realize import capturing

        return any(running.tiny in capturing for running in self.calls)

    def note_call(self, call: RealizeCall) -> bool:
        """Adds a call of `realize` to the TinyJit call that is being captured. Returns whether there is one."""
        is_captured = self.is_captured()
        if is_captured:
            self.calls[-1].realized.append(call)
        return is_captured

    def on_replay(self, replay: Callable[..., Any], captured: Any, *arguments: Any) -> Any:
        """From 0.13 on the captured call is run as a replay before it returns."""
        running = self.calls[-1] if self.calls else None
        if running is None or running.tiny.captured is not captured:
            self.left.append(Left("replays", 1, "what was captured was called by itself, without its TinyJit"))
        elif captured is not None and running.known is None:
            known = self._note_captured(running)
            if known is not None and running.given is not None:
                self._begin(running, known, running.given)
        return replay(captured, *arguments)

    def _note_captured(self, running: _Running) -> jit_call.JitCall | None:
        tiny = running.tiny
        known = self._find_known(tiny)
        if known is not None or not running.realized or running.given is None:
            return known
        source = source_of(tiny.captured)
        try:
            known = jit_call.JitCall(tiny, running.given, running.realized, running.pending, running.owners)
            for u, line in known.list_moved():
                self.unwritten[u] = UnwrittenRead(line, int(u.buffer.size), name_dtype(u.dtype))
            if running.replays_others:
                known.reason = "its function calls another TinyJit, whose kernels are not captured again"
        except Exception as error:  # the user's program goes on
            self.failed[source] = describe_failure(error)
            return None
        self.captured[source] = known
        self.accounts.append(known.account)
        return known

    def find_unwritten(self, nodes: Iterable[UOp]) -> list[UnwrittenRead]:
        """Returns the BUFFERs that a graph reads and that no kernel wrote. What it writes is written from now on."""
        written = {buffer for buffer, _ in list_writes(nodes)}
        found = [self.unwritten[u] for u in nodes if u in self.unwritten and u not in written]
        for u in written:
            self.unwritten.pop(u, None)
        return found

    @contextmanager
    def _leaving(self, account: jit_call.ReplayAccount, what: str) -> Iterator[None]:
        """Counts a replay as not compared if its block fails; `what` there may be no room for."""
        try:
            yield
        except CannotPack as error:
            account.left[str(error)] += 1
        except BlobsFull:
            account.left[f"there was no room for what they {what}"] += 1
        except Exception as error:  # the user's program goes on
            account.left[describe_failure(error)] += 1

    def _begin(self, running: _Running, known: jit_call.JitCall, given: jit_call.Given) -> None:
        with self._leaving(known.account, "read"):
            running.replay = Replay(known, given, self.folder)

    def _finish(self, found: Replay) -> None:
        """Notes what each schedule of a finished replay read and wrote, and writes it if the replay is compared."""
        account, graph = found.known.account, found.graph
        with self._leaving(account, "wrote"):
            kept = [evidence for evidence in found.make_evidence() if evidence.outputs or evidence.held]
            if not kept:
                raise CannotPack("no Tensor holds what it writes")
            if account.newest is not None:
                account.left[account.newest.sample] += 1
            account.newest = jit_call.KeptReplay(found.test, kept, found.contents, graph.sample)
            began = perf_counter()
            if graph.is_chosen(found.number):
                self._write_newest(account)
            elif self._spent < _SHARE * (began - self._began) and self.folder.is_idle():
                self._write_newest(account)
                self._spent += perf_counter() - began

    def _write_newest(self, account: jit_call.ReplayAccount) -> None:
        """Writes the evidence of the newest replay: then it is compared. Raises BlobsFull."""
        newest, account.newest = account.newest, None
        if newest is None:
            return
        self.folder.begin(newest.test)
        for evidence in newest.made:
            newest.contents.give(evidence, self.folder)
        newest.made[0].asked = {"replays": 1}  # one of its schedules stands for the replay
        for evidence in newest.made:
            self.folder.write(evidence)

    def close(self) -> None:
        """Writes the last replay of each captured call, and how many of its replays were not compared, and why."""
        for account in self.accounts:
            with self._leaving(account, "read and wrote"):
                self._write_newest(account)
            if account.runs_once and not account.replays:
                self.left.append(Left("other launches", 1, "prune=True ran them, and no replay showed their results"))
            account.evidence.left += (Left("replays", count, reason) for reason, count in account.left.items())
            if account.left and account.evidence.schedule >= 0:
                self.folder.write(account.evidence)

    def forget(self) -> None:
        """Forgets what was captured."""
        self.captured.clear()
        self.accounts.clear()


def describe_failure(error: Exception) -> str:
    """Returns the reason for what this module cannot read: tinygrad has another form there."""
    return f"it cannot be read: {type(error).__name__}: {first_line(error)}"
