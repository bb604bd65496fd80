"""A random program as Python: the snippet that is run, and the same without scopes, which stock tinygrad can run."""

from __future__ import annotations

from .evaluate import Trace, evaluate
from .ops import OPS
from .program import Apply, Body, Derive, Input, Map, Program, all_steps

INDENT = "    "


def to_source(program: Program) -> str:
    """The program as a snippet for `vmapdbg show`. Its results are in `results`, a tuple of Tensors."""
    return Writer(program, evaluate(program)[1], stock=False).snippet()


def to_stock_source(program: Program) -> str:
    """The same program with a loop over single elements for each scope, for stock.py to run."""
    return Writer(program, evaluate(program)[1], stock=True).snippet()


class Writer:
    def __init__(self, program: Program, trace: Trace, stock: bool):
        self.program, self.trace, self.stock = program, trace, stock

    def snippet(self) -> str:
        p = self.program
        names = [x.name for x in p.inputs]
        lines = [*self.imports(), "", *[self.make_input(x) for x in p.inputs], "", f"def program({', '.join(names)}):"]
        lines += self.body(p.body, INDENT)
        returned = "".join(f"{r}, " for r in p.body.results)
        if p.mode == "jit":
            returned = "".join(f"{r}.realize(), " for r in p.body.results)
        lines += [f"{INDENT}return ({returned.rstrip()})", ""]
        call = f"({', '.join(names)})"
        if p.mode == "jit":
            lines += ["jitted = TinyJit(program)", f"for _ in range(3): results = jitted{call}"]
        else:
            lines += [f"results = program{call}"]
        lines += ["Tensor.realize(*results)"] if p.mode == "together" else []
        return "\n".join([*lines, "for result in results: print(result.numpy())"]) + "\n"

    def imports(self) -> list[str]:
        steps = list(all_steps(self.program))
        maps = [s for s in steps if isinstance(s, Map)]
        lines = ["import numpy as np", "from tinygrad import Tensor, TinyJit, UOp, dtypes"]
        if self.stock:
            return [*lines, "from tests.fuzz.stock import stock_jvp, unroll"]
        functions = [
            *(["jvp_of"] if any(isinstance(s, Derive) and s.kind == "jvp" for s in steps) else []),
            *(["vmap"] if any(m.method != "vargs" for m in maps) else []),
        ]
        if functions:
            lines.append(f"from tinygrad.func import {', '.join(functions)}")
        if any(m.method == "vargs" for m in maps):
            lines.append("from tinygrad.uop.ops import AxisType")
        return lines

    def make_input(self, x: Input) -> str:
        if x.kind == "arange":
            size = 1
            for s in x.shape:
                size *= s
            # stock: codegen crashes or rewrites without end if an arange without a buffer is sliced or is an index
            return f"{x.name} = Tensor.arange({size}, dtype=dtypes.{x.dtype}).reshape({x.shape}).contiguous()"
        if x.kind == "full":
            return f"{x.name} = Tensor.full({x.shape}, {'True' if x.dtype == 'bool' else 2}, dtype=dtypes.{x.dtype})"
        numbers = f"standard_normal({x.shape})"
        if not x.dtype.startswith("float"):
            numbers = f"integers(0, {2 if x.dtype == 'bool' else 7}, {x.shape})"
        realized = ".realize()" if x.kind == "realized" else ""
        made = f"np.asarray(np.random.default_rng({x.seed}).{numbers}).astype('{x.dtype}')"
        return f"{x.name} = Tensor({made}){realized}"

    def body(self, body: Body, indent: str) -> list[str]:
        lines: list[str] = []
        for step in body.steps:
            if isinstance(step, Apply):
                op = OPS[step.op]
                lines.append(f"{indent}{step.out} = {op.text(*step.args, *step.params)}")
                if op.after is not None:
                    lines.append(f"{indent}{op.after(step.out, *step.params)}")
            elif isinstance(step, Derive):
                lines.append(f"{indent}{step.out} = {self.derivative(step)}")
            else:
                lines += self.map(step, indent)
        return lines

    def derivative(self, step: Derive) -> str:
        if step.kind == "gradient":
            return f"{step.y}.square().sum().gradient({step.x}, materialize_grads=True)[0]"
        return f"{'stock_jvp' if self.stock else 'jvp_of'}({step.y}, {step.x}, {step.x} * 0.7 + 0.2)"

    def map(self, step: Map, indent: str) -> list[str]:
        f = f"f_{step.outs[0]}"
        lines = [f"{indent}def {f}({', '.join(step.body.params)}):", *self.body(step.body, indent + INDENT)]
        lines.append(f"{indent}{INDENT}return {', '.join(step.body.results)}")
        outs = ", ".join(step.outs)
        if self.stock:
            call = (
                f"unroll({f}, {step.sizes}, {step.in_axes}, {step.out_axes}, {len(step.outs)})({', '.join(step.args)})"
            )
            return [*lines, f"{indent}{outs} = {call}"]
        if step.method == "vargs":
            return [*self.make_ranges(step, indent), *lines, *self.call_with_vargs(step, f, indent)]
        return [*lines, f"{indent}{outs} = vmap({', '.join([f, *self.options(step)])})({', '.join(step.args)})"]

    def options(self, step: Map) -> list[str]:
        in_axes = tuple(a for (a,) in step.in_axes)
        out_axes = [a for (a,) in step.out_axes]
        options = []
        if set(in_axes) != {0}:
            options.append(f"in_axes={in_axes}")
        if set(out_axes) != {0}:
            options.append(f"out_axes={tuple(out_axes) if len(out_axes) > 1 else out_axes[0]}")
        if set(in_axes) <= {None}:
            options.append(f"axis_size={step.sizes[0]}")
        if step.axis_type != "loop":
            options.append(f'axis_type="{step.axis_type}"')
        if step.method != "ranges":
            options.append(f'method="{step.method}"')
        return options

    def make_ranges(self, step: Map, indent: str) -> list[str]:
        return [
            f"{indent}{range_name(i)} = UOp.range({size}, {i}, AxisType.{step.axis_type.upper()})"
            for i, size in zip(step.axis_ids, step.sizes, strict=True)
        ]

    def call_with_vargs(self, step: Map, f: str, indent: str) -> list[str]:
        def varg(axes: tuple[int | None, ...], ndim: int) -> str:
            entries = ["0"] * ndim
            for axis, i in zip(axes, step.axis_ids, strict=True):
                if axis is not None:
                    entries[axis] = range_name(i)
            return f"(({', '.join(entries)}{',' if ndim == 1 else ''}))"

        args = []
        for arg, axes in zip(step.args, step.in_axes, strict=True):
            mapped = any(a is not None for a in axes)
            args.append(f"{arg}.vmapin{varg(axes, self.trace.values[arg].ndim)}" if mapped else arg)
        lines = [f"{indent}{', '.join(step.outs)} = {f}({', '.join(args)})"]
        for out, axes in zip(step.outs, step.out_axes, strict=True):
            if axes != (None,):
                lines.append(f"{indent}{out} = {out}.vmapout{varg(axes, self.trace.values[out].ndim)}")
        return lines


def range_name(axis_id: int) -> str:
    return f"r{-axis_id}"
