"""Follows the kernel of the first wrong buffer through code generation, if the scheduler made it right: lowers its AST
once more, and computes the wrong elements after each pass from what the kernel really read. Runs in the child."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from vmapdbg.check import result
from vmapdbg.child.compare.first_wrong_buffer import BufferWalk
from vmapdbg.child.compare.kernel_rerun import WrongBuffer, read_arguments
from vmapdbg.child.compare.reference_values import ComparedGraph
from vmapdbg.child.evidence.evidence import Evidence, EvidenceFolder
from vmapdbg.child.evidence.packer import UNEXPECTED
from vmapdbg.child.listen.records import Launch
from vmapdbg.child.listen.rendering import lower_again, name_opt
from vmapdbg.child.passes.steps import describe_uop, find_difference, find_rule_of
from vmapdbg.child.passes.watch import PassRun
from vmapdbg.child.program.interpret import Interpreter, Rows
from vmapdbg.child.program.linear_reader import read_memories
from vmapdbg.child.program.uops import dtype_of, find_loops, is_pointer, lanes_of, loop_name
from vmapdbg.model.wording import first_line
from vmapdbg.reference.arithmetic import load
from vmapdbg.reference.graph import Unknown
from vmapdbg.reference.value import RangedArray
from vmapdbg.values.numbers import Numbers, encode

UOp = Any
LINEAR = "the linear program"
_MOST_ROWS = 16  # at how many steps around the wrong elements the rewrites of a wrong pass are compared
_TERMS = 64  # how many roundings the two sides of a rewrite may differ by
_OTHER_VALUE = frozenset({"SINK", "END", "GROUP", "BARRIER", "AFTER", "RANGE", "SPECIAL"})
Watch = Callable[[Callable[[], object]], list[PassRun]]
"""Runs a function and returns the rewrites of whole graphs that it made."""


class CodegenPath(NamedTuple):
    """What is known of a kernel in code generation: the value after each stage (`rows`), the first rewrite that makes
    it wrong, why that is unknown, and the value without optimizations and with each of them alone."""

    rows: Sequence[result.PassValue] = ()
    rewrite: result.WrongRewrite | None = None
    reason: str | None = None
    optimizations: Sequence[result.PassValue] = ()


def find_codegen_path(
    evidence: Evidence, folder: EvidenceFolder, launches: Sequence[Launch], watch: Watch
) -> CodegenPath:
    """Follows the first wrong kernel. No rows: code generation does not make it wrong, or it cannot be followed."""
    passed = evidence.graphs.get("passed")
    if passed is None:
        return CodegenPath(reason="the buffers between its kernels were not kept")
    walk = BufferWalk(evidence, ComparedGraph(passed, folder.read_data, evidence.left))
    checks = walk.walk()
    wrong, fault = walk.wrong, checks[-1].fault if checks else None
    if wrong is None or fault is None or fault.made_by not in {"codegen", "lowering", "compiler"}:
        return CodegenPath()
    launch = wrong.buffer.launch
    if launch is None or launch >= len(launches):
        return CodegenPath(reason="the kernel that makes it wrong is not known")
    try:
        return KernelFollower(wrong, launches[launch], watch).follow(fault)
    except (Unknown, *UNEXPECTED) as error:
        return CodegenPath(reason=str(error))


class KernelFollower:
    """Follows the kernel that wrote `wrong`, its argument 0."""

    def __init__(self, wrong: WrongBuffer, launch: Launch, watch: Watch):
        self.wrong, self.launch, self.watch = wrong, launch, watch
        self.runs = self._lower(launch.ast)
        memories = read_memories(list(launch.ast.toposort()))
        self.dtypes = {memory.slot: memory.dtype for memory in memories if memory.space == "global"}
        read = read_arguments(self.dtypes, wrong.buffer.run.arguments, wrong)
        self.contents: dict[int, Numbers] = {slot: load(array) for slot, array in read.items()}
        self.wanted = wrong.mark_elements()
        self.tried = self.skipped = 0

    def _lower(self, ast: UOp) -> list[PassRun]:
        runs = self.watch(lambda: lower_again(ast, self.launch.buffers[0].device))
        return [run for run in runs if run.after.op.name == "SINK"]

    def follow(self, fault: result.KernelFault) -> CodegenPath:
        rows = [self._judge(f"the AST of kernel #{self.wrong.buffer.kernel}", None, self.launch.ast)]
        rewrite: result.WrongRewrite | None = None
        reason: str | None = None
        judged = self.launch.ast
        for run in self.runs:
            rows.append(self._judge(run.name, run.place, run.after))
            if rows[-1].status == "wrong" and not any(row.status == "wrong" for row in rows[:-1]):
                if run.before is not judged and self._judge(run.name, run.place, run.before).status == "wrong":
                    reason = "it is wrong before this pass: tinygrad changes the graph without a rewrite"
                else:
                    rewrite = self._find_rewrite(run)
            judged = run.after
        status: dict[str, result.PassStatus] = {"compiler": "right", "codegen": "wrong"}
        made = status.get(fault.made_by, "unknown")
        linear = result.PassValue(LINEAR, None, made, reason=fault.reason, kind="codegen")
        is_wrong = any(row.status == "wrong" for row in rows)
        return CodegenPath([*rows, linear], rewrite, reason, self._try_optimizations() if is_wrong else ())

    def _try_optimizations(self) -> list[result.PassValue]:
        """Returns how the kernel computes the wrong elements without optimizations, and with each of them alone."""
        chosen = getattr(self.runs[-1].after.arg, "applied_opts", ())
        if not chosen:
            return []
        sets = {"without optimizations": ()} | {f"with {name_opt(one)} alone": (one,) for one in chosen}
        arg = self.launch.ast.arg or type(self.runs[-1].after.arg)()
        rows: list[result.PassValue] = []
        for name, opts in sets.items():
            try:
                runs = self._lower(self.launch.ast.replace(arg=replace(arg, opts_to_apply=opts)))
            except Exception as error:  # it is for axes that another optimization makes
                reason = f"tinygrad refuses it: {first_line(error)}"
                rows.append(result.PassValue(name, None, "unknown", reason=reason, kind="codegen"))
            else:
                rows.append(self._judge(name, None, runs[-1].after))
        return rows

    def _judge(self, name: str, place: str | None, sink: UOp) -> result.PassValue:
        """Returns the row of a stage: how it computes the elements that are wrong."""
        try:
            held = self._open().run_stores(sink, 0, self.wanted)
            numbers, _ = self.wrong.put_in(held, self.dtypes[0], self.wanted)
            found = self.wrong.compare(encode(numbers, self.wrong.right.dtype)).difference
        except (Unknown, *UNEXPECTED) as error:
            return result.PassValue(name, place, "unknown", reason=str(error), kind="codegen")
        return result.PassValue(name, place, "right" if found is None else "wrong", found, kind="codegen")

    def _open(self) -> Interpreter:
        return Interpreter(self.contents, self.launch.variables, dtypes=self.dtypes)

    # *** the first rewrite of a wrong pass

    def _find_rewrite(self, run: PassRun) -> result.WrongRewrite | None:
        """Returns the first rewrite that changes a value at the steps that write wrong elements."""
        try:
            around = self._open().find_rows(run.before, 0, self.wanted, _MOST_ROWS)
        except Unknown:
            return None
        for old, new in run.rewrites:
            if old.op.name in _OTHER_VALUE or new.op.name in _OTHER_VALUE:
                continue
            self.tried += 1
            try:
                found, loops = self._differ(old, new, around)
            except (Unknown, *UNEXPECTED):
                self.skipped += 1
                continue
            if found is not None:
                sides, rule = (describe_uop(old), describe_uop(new)), find_rule_of(run, old, new)
                names = tuple(map(loop_name, loops))
                return result.WrongRewrite("rule", *sides, rule, found, names, None, None, self.tried, self.skipped)
        return None

    def _differ(self, old: UOp, new: UOp, around: Rows) -> tuple[result.Difference | None, list[UOp]]:
        """Returns how two UOps differ, and the loops that both depend on. Raises Unknown."""
        if (old.op.name == "STORE") != (new.op.name == "STORE"):
            raise Unknown("a store has no value")
        sides = [(old, new)]
        if old.op.name == "STORE":
            sides = [(one, other) for one, other in zip(old.src[:2], new.src[:2], strict=True) if one is not other]
        for one, other in sides:
            loops = find_loops(one)
            if not loops.keys() >= find_loops(other).keys():
                raise Unknown("it depends on other loops")
            # each side has registers of its own
            left, right = (Rows(self._open(), around.steps, around.count).spread(loops) for _ in sides[:1] * 2)
            found = _find_difference(one, other, left, right)
            if found is not None:
                return self._locate(found, left), list(left.steps)
        return None, []

    @staticmethod
    def _locate(found: result.Difference, rows: Rows) -> result.Difference:
        """Returns a difference whose index has the steps of the loops in place of a row."""
        row, *lane = found.index
        steps = [int(step[min(row, len(step) - 1), 0]) for step in rows.steps.values()]
        return result.Difference((*steps, *lane), found.got, found.expected, found.wrong, found.total)


def _find_difference(old: UOp, new: UOp, left: Rows, right: Rows) -> result.Difference | None:
    """Returns how two UOps differ: pointers by the elements that they address. Raises Unknown."""
    if is_pointer(old) and is_pointer(new):
        width = max(lanes_of(old), lanes_of(new))
        before, is_before = left.find_elements(old, width, 1 << 60)
        after, is_after = right.find_elements(new, width, 1 << 60)
        sides = RangedArray(np.where(is_before, before, -1)), RangedArray(np.where(is_after, after, -1))
        return find_difference(*sides, "long", 1)
    if dtype_of(old) != dtype_of(new) or lanes_of(old) != lanes_of(new):
        raise Unknown("it has another dtype")
    return find_difference(RangedArray(left.get(old)), RangedArray(right.get(new)), dtype_of(old), _TERMS)
