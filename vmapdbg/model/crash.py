"""Where tinygrad itself failed or did not end, as data; `vmapdbg.page.sentences` writes the sentences."""

from dataclasses import dataclass

from vmapdbg.model.vocabulary import CrashKind, CrashStage


@dataclass(frozen=True)
class RewriteStep:
    """One of the nodes for which a rewrite does not end.

    `node` describes it (`RANGE r4`), `becomes` describes its replacement, if any. `rule` is the `file:line` of the rule
    that replaced it, None if only its sources were replaced. `added` are its new sources."""

    node: str
    becomes: str | None
    rule: str | None
    added: tuple[str, ...] = ()


@dataclass(frozen=True)
class SharedLoop:
    """A loop of a kernel that has several ENDs, so that its program cannot be ordered. The code generation rewrite
    named `rewrite`, at `place`, made the second END. In the scheduler's AST `in_ast` REDUCEs are over the loop; later
    there were up to `reduces`, since the rewrite `grown` at `grown_place` (None if the AST had as many)."""

    loop: str
    ends: int
    rewrite: str
    place: str
    in_ast: int
    reduces: int
    grown: str | None
    grown_place: str | None


@dataclass(frozen=True)
class Refusal:
    """What a compiler says of a kernel's source: its first error, and the line of the source, with its number."""

    message: str
    number: int
    line: str


@dataclass(frozen=True)
class Crash:
    """Where tinygrad raised an error, or was stopped because it would never have ended.

    `kind` is `error`, or for a rewrite: `waits` (the nodes of `steps` wait for each other in a circle), `repeats` (some
    rules undo what other rules do) or `grows` (a rule makes a node larger and larger). `stage` is what tinygrad was
    doing. `place` is the `file:line` in tinygrad (for an endless rewrite: its loop), `function` the function there, and
    `operands` are the UOps in its variables, by name. `rewrite` is the name of the current graph rewrite,
    `rewrite_place` its place; `rule` is the `file:line` of the rule that raised. `schedule` is the number of the
    schedule, `kernel` the number of the compute kernel, and `nodes` are the ids of the current nodes. `done` counts the
    nodes that an endless rewrite had finished. `method` is the method of Tensor that the user called, if it built the
    graph. `shared_loop` is why a kernel's program cannot be ordered, `refusal` why a compiler refused its source."""

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
    refusal: Refusal | None = None
