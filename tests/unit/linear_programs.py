"""Makes linear programs by hand, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vmapdbg.reference.linear import Instruction, LinearProgram, Memory, Space
from vmapdbg.reference.run_kernel import Written
from vmapdbg.reference.run_linear import NO_STEPS, Steps, run_linear
from vmapdbg.values.numbers import Array, decode, encode


class ProgramMaker:
    """Makes one program. Methods return the position of what they add; memory is named by its own."""

    def __init__(self) -> None:
        self.program = LinearProgram()
        self.contents: dict[int, Array] = {}

    def add(self, op: str, *src: int, dtype: str = "float", lanes: int = 1, arg: Any = None) -> int:
        self.program.instructions.append(Instruction(op, dtype, lanes, src, arg))
        return len(self.program.instructions) - 1

    # *** memory

    def argument(self, numbers: ArrayLike, dtype: str = "float") -> int:
        """Adds an argument that holds these numbers."""
        number = len(self.contents)
        self.contents[number] = encode(np.asarray(numbers).ravel(), dtype)
        return self._add_memory(Memory("argument", dtype, 0, number))

    def memory(self, space: Space, size: int, dtype: str = "float") -> int:
        return self._add_memory(Memory(space, dtype, size))

    def _add_memory(self, memory: Memory) -> int:
        self.program.memories.append(memory)
        return len(self.program.memories) - 1

    def load(self, memory: int, place: int, *otherwise: int, lanes: int = 1) -> int:
        """`otherwise` are the value that is taken where the gate does not hold, and the gate."""
        dtype = self.program.memories[memory].dtype
        return self.add("load", place, *otherwise, dtype=dtype, lanes=lanes, arg=memory)

    def store(self, memory: int, place: int, value: int, *gate: int, lanes: int = 1) -> int:
        dtype = self.program.memories[memory].dtype
        return self.add("store", place, value, *gate, dtype=dtype, lanes=lanes, arg=memory)

    # *** numbers

    def number(self, value: float, dtype: str = "int") -> int:
        return self.add("const", dtype=dtype, arg=value)

    def loop(self, steps: int) -> int:
        return self.add("loop", self.number(steps), dtype="int")

    def end(self, loop: int) -> int:
        return self.add("end", dtype="bool", arg=loop)

    def thread(self, count: int, is_own: bool = False) -> int:
        return self.add("thread", dtype="int", arg=(is_own, count))

    def place(self, *parts: tuple[int, int]) -> int:
        """Returns a sum of counters, each times a stride."""
        terms = [self.add("mul", counter, self.number(stride), dtype="int") for counter, stride in parts]
        total = terms[0]
        for term in terms[1:]:
            total = self.add("add", total, term, dtype="int")
        return total

    # *** running

    def run(self, kept: Steps = NO_STEPS) -> Written:
        """Returns what argument 0 holds afterwards."""
        return run_linear(self.program, self.contents, kept)[0]

    def numbers(self, kept: Steps = NO_STEPS) -> NDArray[Any]:
        written = self.run(kept)
        assert written.undefined is None, written.undefined
        return decode(written.array)


def make_elementwise(op: str, dtype: str, result: str, *operands: Sequence[float] | NDArray[Any]) -> ProgramMaker:
    """Makes a program that applies an op to each element of arguments of a dtype."""
    made = ProgramMaker()
    out = made.argument(np.zeros(len(operands[0])), result)
    inputs = [made.argument(operand, dtype) for operand in operands]
    loop = made.loop(len(operands[0]))
    values = [made.load(one, loop) for one in inputs]
    made.store(out, loop, made.add(op, *values, dtype=result))
    made.end(loop)
    return made
