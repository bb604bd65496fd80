"""Draws random programs. Where the choices come from is a `Draw`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from .draw import Draw
from .evaluate import check_value, evaluate, input_value, put_elements, take_element
from .ops import OPS, Array, Op
from .program import (
    Apply,
    Body,
    Derive,
    Input,
    Invalid,
    Map,
    Program,
    Step,
    all_steps,
    args_of,
    free_names,
    outs_of,
    used_program,
)

# *** what random programs avoid: stock tinygrad 0.12.0 gets it wrong without any scope
#
# A value has traits and passes them on to its readers; some ops are not drawn for a value with a trait.
# - divided: a condition on a quotient is wrong if it is padded twice in one kernel, as in
#   `(x / y > z).where(x, z).cumsum(0)`
# - repeated, then mixed: a reduce of all axes counts too often if a repeated axis is merged with another or padded,
#   as in `x.unsqueeze(1).expand(2, 3, 2).flatten(1, 2).sum()`
# Places in ops.py and source.py that avoid one form of an op say why there.

Traits = frozenset[str]

NONE: Traits = frozenset()
DIVIDED: Traits = frozenset({"divided"})
REPEATED: Traits = frozenset({"repeated"})
# a gradient divides by the number of the largest, and repeats what a sum made one
DERIVED = DIVIDED | REPEATED

DIVIDES = {"recip", "softmax", "normalize", "tanh"}
CONDITIONS = {"above", "select", "where", "relu", "index_tensor", "argmax"}
REPEATS = {"repeat"}
MERGES = {"flatten", "merge", "split", "cat_flat", "outer", "pad", "cat", "twice", "stack", "roll"}
SUMS = {"sum", "sum_all", "sum_keep", "mean", "prod", "cumsum", "normalize", "deviation", "softmax", "times_sum"}
SUMS |= {"stack_sums", "matmul"}


def is_safe(op: str, traits: Traits) -> bool:
    if op in CONDITIONS and "divided" in traits:
        return False
    return not (op in SUMS and "mixed" in traits)


def traits_after(op: str, traits: Traits) -> Traits:
    if op in DIVIDES:
        traits |= DIVIDED
    if op in MERGES and "repeated" in traits:
        traits |= {"mixed"}
    if op in REPEATS:
        traits |= REPEATED
    return traits


# *** the generator


def generate(draw: Draw, largest: int = 36) -> Program:
    """Raises Invalid where the choices led to a program that computes nothing of use."""
    return Generator(draw, largest).program()


@dataclass
class Scope:
    """What is known while a body is drawn."""

    names: list[str]  # the values that a step may use, the newest last
    depth: int
    open_ids: frozenset[int] = frozenset()
    steps: list[Step] = field(default_factory=list)


class Generator:
    def __init__(self, draw: Draw, largest: int):
        self.draw = draw
        self.left = largest
        self.max_depth = draw.choice((1, 2, 2, 3, 3))
        self.derives = draw.integer(1, 2) if draw.chance(30) else 0
        self.is_derived = self.derives > 0
        self.outer = draw.chance(30)
        self.sizes = draw.choice(((2, 3), (2, 3, 4), (1, 2, 3), (3, 5), (1, 2, 3, 4, 5)))
        self.float = "float32" if draw.chance(20) else "float64"
        self.values: dict[str, Array] = {}
        self.depends: dict[str, frozenset[str]] = {}  # all ancestors of a value, and the value itself
        self.batches: dict[str, frozenset[int]] = {}  # the maps that it has an element of
        self.traits: dict[str, Traits] = {}  # what stock tinygrad goes wrong on
        self.count = 0
        self.maps = 0

    def program(self) -> Program:
        d = self.draw
        inputs = tuple(self.input() for _ in range(d.integer(1, 4)))
        top = Scope([x.name for x in inputs], 0)
        with np.errstate(all="ignore"):
            for _ in range(d.integer(0, 3)):
                self.step(top)
            self.map(top)
            while self.has_another_step(95):
                self.step(top)
            if self.derives:
                self.derive(top)
        made = [n for n in top.names if n not in {x.name for x in inputs}]
        if not made:
            raise Invalid("no step")
        used = {a for s in top.steps for a in args_of(s)}
        # what nothing else reads, so that few steps are for nothing
        results = [n for n in reversed(made) if n not in used][: d.integer(2, 4)] or made[-1:]
        if d.chance(30):
            results.append(d.choice(made))
        mode = d.choice(("each", "each", "each", "together", "together", "together", "jit"))
        program = used_program(Program(inputs, Body((), tuple(top.steps), tuple(dict.fromkeys(results))), mode))
        if mode == "jit":
            program = for_jit(program)
        if not any(isinstance(s, Map) for s in program.body.steps):
            raise Invalid("no scope")
        evaluate(program)
        return program

    def has_another_step(self, percent: int) -> bool:
        """A choice before each step: without the choices of one step, the program is the same without that step."""
        if self.left == 0:
            return False
        self.left -= 1
        return self.draw.chance(percent)

    def new_name(self, prefix: str = "v") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def know(self, name: str, value: Array, depends: frozenset[str], batches: frozenset[int], traits: Traits) -> None:
        self.values[name], self.depends[name], self.batches[name] = value, depends | {name}, batches
        self.traits[name] = traits

    def input(self) -> Input:
        d = self.draw
        shape = tuple(d.choice(self.sizes) for _ in range(d.choice((1, 2, 2, 3, 3))))
        dtype = self.float if d.chance(85) else d.choice(("int32", "bool"))
        kind = d.choice(("data", "realized", "realized", "arange" if dtype != "bool" else "data", "full"))
        name = self.new_name("x")
        if kind in ("arange", "full") and self.is_derived:
            # what a derivative is taken at must be in the graph
            kind = "data"
        x = Input(name, shape, dtype, kind, self.count)
        self.know(name, input_value(x), frozenset(), frozenset(), REPEATED if kind == "full" else NONE)
        return x

    def pick(self, scope: Scope) -> str:
        # usually one of the newest, so that programs are deep
        if self.draw.chance(60):
            return scope.names[-1 - self.draw.integer(0, min(2, len(scope.names) - 1))]
        return self.draw.choice(scope.names)

    def step(self, scope: Scope) -> None:
        d = self.draw
        if scope.depth < self.max_depth and self.maps < 6 and d.chance(22):
            return self.map(scope)
        if self.derives and scope.depth and d.chance(8):
            return self.derive(scope)
        for _ in range(8):
            first = self.pick(scope)
            kind = self.values[first].dtype.kind
            name = d.choice(WEIGHTED[kind])
            op = OPS[name]
            if self.fits(op, first, scope) and self.apply(scope, name, op, first):
                return None
        return None

    def fits(self, op: Op, first: str, scope: Scope) -> bool:
        if self.is_derived and not op.derivable:
            return False
        return not (op.only_inside and not self.batches[first]) and not (op.only_outside and scope.depth)

    def apply(self, scope: Scope, name: str, op: Op, first: str) -> bool:
        args = [first]
        if op.arity == 2:
            dtype = self.values[first].dtype
            others = [
                n for n in scope.names if self.values[n].dtype == dtype or (name == "masked" and self.is_float(n))
            ]
            fits = [n for n in others if op.draw(self.draw, self.values[first], self.values[n]) is not None]
            if name == "masked":
                fits = [n for n in fits if self.is_float(n)]
            if not fits:
                return False
            args.append(self.draw.choice(fits))
        traits = NONE.union(*[self.traits[a] for a in args])
        if not is_safe(name, traits):
            return False
        arrays = [self.values[a] for a in args]
        if (params := op.draw(self.draw, *arrays)) is None:
            return False
        try:
            check_value(value := np.asarray(op.value(*arrays, *params)))
        except (Invalid, ValueError, IndexError):
            return False
        # stock: if a slice holds only padding and is realized, its source becomes zero, too
        if not value.any():
            return False
        out = self.new_name()
        scope.steps.append(Apply(out, name, tuple(args), params))
        depends = frozenset().union(*[self.depends[a] for a in args])
        batches = frozenset().union(*[self.batches[a] for a in args])
        self.know(out, value, depends, batches, traits_after(name, traits))
        scope.names.append(out)
        return True

    def is_float(self, name: str) -> bool:
        return self.values[name].dtype.kind == "f"

    def derive(self, scope: Scope) -> None:
        pairs = [
            (y, x)
            for y in scope.names[-4:]
            for x in scope.names
            if x != y and x in self.depends[y] and self.is_float(x) and self.is_float(y)
        ]
        if not pairs:
            return
        self.derives -= 1
        y, x = self.draw.choice(pairs)
        kind = self.draw.choice(("gradient", "jvp"))
        out = self.new_name("d")
        scope.steps.append(Derive(out, kind, y, x))
        like = self.values[x if kind == "gradient" else y]
        self.know(out, like * 0 + 0.5, self.depends[y], self.batches[y] | self.batches[x], self.traits[y] | DERIVED)
        scope.names.append(out)

    # *** scopes

    def map(self, scope: Scope) -> None:
        d = self.draw
        method = d.choice(("ranges", "ranges", "ranges", "pad_reduce", "vargs", "vargs"))
        count = 2 if method == "vargs" and d.chance(30) else 1
        fits = [n for n in scope.names if self.values[n].ndim >= count]
        if not fits:
            return
        first = d.choice(fits[-4:]) if d.chance(70) else d.choice(fits)
        shape = self.values[first].shape
        axes = [d.integer(0, len(shape) - 1)]
        if count == 2:
            axes.append(d.choice([i for i in range(len(shape)) if i != axes[0]]))
        sizes = tuple(shape[a] for a in axes)
        args, in_axes = [first], [self.signed(tuple(axes), len(shape))]
        for _ in range(d.choice((0, 1, 1, 2))):
            arg, taken = self.pick(scope), self.axes_of_sizes
            args.append(arg)
            in_axes.append(self.signed(taken(arg, sizes), self.values[arg].ndim))
        free_ids = [i for i in range(-1, -7, -1) if i not in scope.open_ids]
        ids: list[int] = []
        while method == "vargs" and len(ids) < count:
            ids.append(free_ids.pop(d.integer(0, 1)))
        axis_type = "outer" if self.outer and method != "pad_reduce" and d.chance(40) else "loop"
        self.maps += 1
        mine = frozenset(self.maps * 2 + i for i in range(count))
        body = self.body(scope, args, in_axes, ids, sizes, mine)
        if body is not None:
            self.close(
                scope, Map((), tuple(args), tuple(in_axes), (), body, sizes, axis_type, method, tuple(ids)), mine
            )

    def signed(self, axes: tuple[int | None, ...], ndim: int) -> tuple[int | None, ...]:
        return tuple(a - ndim if a is not None and self.draw.chance(25) else a for a in axes)

    def axes_of_sizes(self, name: str, sizes: tuple[int, ...]) -> tuple[int | None, ...]:
        """An axis of the value for each size if it has one; sometimes none."""
        axes: list[int | None] = []
        for size in sizes:
            fits = [i for i, s in enumerate(self.values[name].shape) if s == size and i not in axes]
            axes.append(self.draw.choice(fits) if fits and self.draw.chance(75) else None)
        return tuple(axes)

    def body(
        self,
        scope: Scope,
        args: list[str],
        in_axes: list[tuple[int | None, ...]],
        ids: list[int],
        sizes: tuple[int, ...],
        mine: frozenset[int],
    ) -> Body | None:
        d = self.draw
        params = [self.new_name("e") for _ in args]
        for param, arg, axes in zip(params, args, in_axes, strict=True):
            mapped = frozenset(m for m, a in zip(sorted(mine), axes, strict=True) if a is not None)
            value = take_element(self.values[arg], axes, (0,) * len(sizes))
            self.know(param, value, self.depends[arg], self.batches[arg] | mapped, self.traits[arg])
        closed = [d.choice(scope.names) for _ in range(d.choice((0, 0, 1, 2)))]
        inner = Scope([*dict.fromkeys(closed), *params], scope.depth + 1, scope.open_ids | set(ids))
        self.step(inner)
        while self.has_another_step(75):
            self.step(inner)
        made = [n for n in inner.names if n not in closed and n not in params]
        if not made:
            return None
        results = [made[-1], *(d.choice(made) for _ in range(d.choice((0, 0, 0, 1, 2))))]
        if d.chance(5):
            results.append(d.choice(inner.names))
        return Body(tuple(params), tuple(inner.steps), tuple(dict.fromkeys(results)))

    def close(self, scope: Scope, step: Map, mine: frozenset[int]) -> None:
        """Gives the map its results and their axes."""
        d = self.draw
        outs, out_axes = [], []
        within = {*step.body.params, *(o for s in step.body.steps for o in outs_of(s))}
        free = frozenset().union(*[self.depends[n] for n in (*step.args, *free_names(step.body))])
        found = []
        for name in step.body.results:
            value, ndim = self.values[name], self.values[name].ndim + len(step.sizes)
            left, places = list(range(ndim)), []
            for _ in step.sizes:
                places.append(left.pop(d.integer(0, len(left) - 1)))
            axes = self.signed(tuple(places), ndim)
            if not self.batches[name] & mine and len(step.sizes) == 1 and d.chance(40):
                axes = (None,)
            whole = value
            if axes != (None,):
                whole = put_elements([value] * int(np.prod(step.sizes)), step.sizes, axes)
            try:
                check_value(whole)
            except Invalid:
                return
            found.append((self.new_name(), name, whole, axes))
        for out, name, whole, axes in found:
            outs.append(out)
            out_axes.append(axes)
            depends = (self.depends[name] - within) | (free & self.depends[name])
            is_spread = len(self.batches[name] & mine) < len(step.sizes)
            traits = self.traits[name] | (REPEATED if is_spread else NONE)
            self.know(out, whole, depends, self.batches[name] - mine, traits)
        scope.steps.append(replace(step, outs=tuple(outs), out_axes=tuple(out_axes)))
        scope.names += outs


WEIGHTED = {
    kind: tuple(name for name, op in OPS.items() if kind in op.kinds for _ in range(op.weight)) for kind in "fib"
}


def for_jit(program: Program) -> Program:
    """The JIT takes buffers. stock: if codegen drops an unread buffer, such as an index into an expanded axis, its
    graph passes the wrong buffers to a kernel: `x.expand(1, 2, 2)[:, :, (y > 0).where(1, 0)]` gave y."""
    if any(isinstance(step, Apply) and step.op == "index_tensor" for step in all_steps(program)):
        return replace(program, mode="each")
    return replace(program, inputs=tuple(replace(x, kind="realized") for x in program.inputs))
