"""Where tinygrad itself failed or did not end: data, of which `vmapdbg.page.crash_sentences` makes sentences."""

from __future__ import annotations

from dataclasses import dataclass

from vmapdbg.model.vocabulary import CrashKind, CrashStage


@dataclass(frozen=True)
class RewriteStep:
    """One of the nodes for which a rewrite does not end.

    `node` says what it is (`RANGE r4`), `becomes` what was made of it, None where nothing was. `rule` is the
    `file:line` of the rule that did, None where it only got what became of its sources. `added` are sources that it has
    since.
    """

    node: str
    becomes: str | None
    rule: str | None
    added: tuple[str, ...] = ()


@dataclass(frozen=True)
class SharedLoop:
    """A loop of a kernel that has several ENDs, so that its program cannot be put in order. It has had them since the
    rewrite of code generation that is called `rewrite`, at `place`. `in_ast` of the REDUCEs in the AST that the
    scheduler made are over it; there were `reduces` at most, since the rewrite `grown` at `grown_place`, None where
    that is the AST's own number."""

    loop: str
    ends: int
    rewrite: str
    place: str
    in_ast: int
    reduces: int
    grown: str | None
    grown_place: str | None


@dataclass(frozen=True)
class Crash:
    """Where tinygrad raised an error, or was stopped because it would never have ended.

    `kind` is `error`; or, of a rewrite, `waits`: the nodes of `steps` wait for each other in a circle; `repeats`: rules
    make of a node what others make undone; `grows`: a rule makes more and more of a node. `stage` is what tinygrad was
    doing. `place` is the `file:line` in tinygrad (of what never ends: of its loop), `function` the name of the function
    there, and `operands` are the UOps that it had, by the names of its variables. `rewrite` is the name of the rewrite
    of a graph that was under way, or whose arguments were made, `rewrite_place` where it stands; `rule` is the
    `file:line` of the rule that raised. `schedule` is the number of the schedule, `kernel` that of the compute kernel,
    and `nodes` are the ids of the nodes that it was busy with. `done` is how many nodes an endless rewrite was through
    with. `method` is the method of Tensor that the user called, where it built the graph. `shared_loop` is what makes a
    kernel's program one that cannot be put in order.
    """

    kind: CrashKind
    stage: CrashStage
    place: str | None
    function: str | None
    rewrite: str | None = None
    rewrite_place: str | None = None
    rule: str | None = None
    schedule: int | None = None
    kernel: int | None = None
    nodes: tuple[int, ...] = ()
    steps: tuple[RewriteStep, ...] = ()
    done: int | None = None
    method: str | None = None
    operands: tuple[tuple[str, str], ...] = ()
    shared_loop: SharedLoop | None = None
