"""The JSON documents of the tool, and the list of all of them. `python -m docs.make_schemas` writes their schemas."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from vmapdbg.bisect.outcome import NamedOutcome
from vmapdbg.bisect.search import FoundSets, Reduced
from vmapdbg.check.findings import ProgramCheck
from vmapdbg.check.result import ScheduleCheck, SchedulePath
from vmapdbg.diff.result import CaptureDiff
from vmapdbg.install.job import Choice
from vmapdbg.model.account import Account
from vmapdbg.model.capture import SCHEMA, Capture, Device, Finding, Kernel, Schedule, SnippetError, Versions
from vmapdbg.model.schedule_index import index_of
from vmapdbg.page.graph.model import Graph
from vmapdbg.suite.compare import SuiteDiff
from vmapdbg.tune import search


@dataclass(frozen=True)
class Document:
    """The first fields of each document."""

    schema: Literal[1]
    kind: str


@dataclass(frozen=True)
class Envelope(Document):
    """The head that a document shares with the capture it is about."""

    versions: Versions
    snippet: str
    target: str
    patches: dict[str, bool]
    error: SnippetError | None


@dataclass(frozen=True)
class CheckDocument(Envelope):
    """What `vmapdbg check --json` prints: the head of the capture, how each schedule compares, and the findings.
    `left` counts the schedules that were not compared because the comparison was stopped. `account` compares what
    happened in the run with what was compared."""

    kind: Literal["check"]
    schedules: tuple[ScheduleCheck, ...]
    findings: tuple[Finding, ...]
    left: int = 0
    account: Account | None = None


@dataclass(frozen=True)
class LintDocument(Envelope):
    """What `vmapdbg lint --format json` prints: the head of the capture and the findings. `ignored` counts the findings
    that comments on the user's lines excluded. `account` compares the launches of the run with those that were looked
    at."""

    kind: Literal["lint"]
    findings: tuple[Finding, ...]
    ignored: int
    account: Account | None = None


@dataclass(frozen=True)
class ValueDocument(Envelope):
    """What `vmapdbg why --value --json` prints: the head of the capture, and each schedule with its outputs after each
    pass of the scheduler. `stopped`: the user stopped it before all schedules were evaluated. `account` compares the
    outputs of the run, or of the part that was asked for, with those that were followed."""

    kind: Literal["why-value"]
    schedules: tuple[SchedulePath, ...]
    stopped: bool
    account: Account | None = None


E = TypeVar("E", bound=Envelope)


def make_document(document: type[E], capture: Capture, **body: Any) -> E:
    """Returns a document about a capture, with the capture's head and the fields of `body`."""
    kinds = {known: kind for kind, known in DOCUMENTS.items()}
    head = {name: getattr(capture, name) for name in ("versions", "snippet", "target", "patches", "error")}
    return document(schema=SCHEMA, kind=kinds[document], **head, **body)


# *** about several files, or a whole program


@dataclass(frozen=True)
class LintFilesDocument(Document):
    """What `vmapdbg lint --format json` prints about several files: the document of each."""

    kind: Literal["lint-files"]
    files: tuple[LintDocument, ...]


@dataclass(frozen=True)
class RunDocument(Document):
    """What `vmapdbg run --lint-output` writes: the findings of a whole program, its processes together.

    `status` is the exit code of the program (128 + the signal that killed it). `kernels` counts the different kernels
    of each process, `undecided` the kernels with an address that is unknown, `ignored` the findings that comments
    excluded, `failed` the schedules that could not be checked, by reason. `account` has the launches, which
    each process counts apart, the kernels, and how many of both were looked at."""

    kind: Literal["run"]
    target: str
    status: int
    schedules: int
    kernels: int
    undecided: int
    ignored: int
    failed: dict[str, int]
    findings: tuple[Finding, ...]
    account: Account | None = None


# *** vmapdbg bisect --json


@dataclass(frozen=True)
class Trial:
    """A set of patches that the snippet was run with, and the name of the outcome."""

    patches: tuple[str, ...]
    outcome: str


@dataclass(frozen=True)
class BisectDocument(Document):
    """What `vmapdbg bisect --json` prints. `given` are the patches of the job. `removed`: taken away from them, they
    change the outcome; `added`: alone, they change that of no patch; `enough`: alone, they have the outcome of `given`.
    """

    kind: Literal["bisect"]
    snippet: str
    on: str
    given: tuple[str, ...]
    outcomes: tuple[NamedOutcome, ...]
    removed: FoundSets
    added: FoundSets
    enough: FoundSets
    tried: tuple[Trial, ...]
    reduced: Reduced | None


# *** vmapdbg bisect --commits --json


@dataclass(frozen=True)
class CommitTrial:
    """A commit (short hash, date, subject) that the snippet was run on, and the name of the outcome; None if it
    could not be run. `number` is what was measured, in seconds, ops or bytes."""

    commit: str
    outcome: str | None
    number: float | None = None


@dataclass(frozen=True)
class History(Document):
    """What `vmapdbg bisect --commits --json` prints. `by` is what tells outcomes apart, `commits` how many there were
    to choose from; `tried` are in the order of the history.

    `suspects` are the commits that changed the outcome: one, or several where those in between could not be run; none
    where nothing changed. `changes` compares the schedules of the last of them with those before the first. `floor` is
    the noise of what was measured, found by several runs of both ends; None if outcomes were compared."""

    kind: Literal["bisect-commits"]
    snippet: str
    by: str
    commits: int
    outcomes: tuple[NamedOutcome, ...]
    tried: tuple[CommitTrial, ...]
    suspects: tuple[str, ...]
    changes: CaptureDiff | None
    floor: float | None = None


# *** vmapdbg bisect --decisions --json


@dataclass(frozen=True)
class Decided:
    """A decision that was made for the scheduler: a node of a schedule was forced to be a buffer (`realized`), or a
    realize point was left out. Shape and line are as in a capture. `kept` is true if the node then has a buffer: a
    constant's buffer is removed again."""

    schedule: int
    node: int
    op: str
    shape: tuple[int | str, ...] | None
    line: str | None
    realized: bool
    kept: bool


@dataclass(frozen=True)
class DecisionTrial:
    """Decisions that the snippet was run with, the name of the outcome, and how many kernels there were."""

    decisions: tuple[Decided, ...]
    outcome: str
    kernels: int


@dataclass(frozen=True)
class DecisionsDocument(Document):
    """What `vmapdbg bisect --decisions --json` prints. `by` is what tells outcomes apart.

    `reference` says what is taken for right, and `right` names its outcome; None if the search is for any change.
    `given` names the outcome of the snippet as it is. `candidates` is how many nodes there were to force.

    `found` are the decisions that make it right, or change it: each on its own, or one set no part of which does; the
    one with the fewest kernels first. `complete` is false where --runs did not suffice. `changes` compares the
    schedules under the first of them with those as they are."""

    kind: Literal["bisect-decisions"]
    snippet: str
    by: str
    reference: str | None
    right: str | None
    given: str
    candidates: int
    outcomes: tuple[NamedOutcome, ...]
    found: tuple[DecisionTrial, ...]
    complete: bool
    tried: tuple[DecisionTrial, ...]
    changes: CaptureDiff | None


def describe_choices(
    choices: Collection[Choice], schedules: Sequence[Schedule], made: Sequence[Schedule]
) -> tuple[Decided, ...]:
    """Returns the choices with their nodes, and whether these have a buffer in what was `made` (empty if it died)."""
    found: list[Decided] = []
    for choice in sorted(choices):
        node = index_of(schedules[choice.schedule]).nodes[choice.node]
        kept = choice.schedule < len(made) and index_of(made[choice.schedule]).find_kept(node.id) is not None
        found.append(Decided(choice.schedule, node.id, node.op, node.shape, node.line, choice.realized, kept))
    return tuple(found)


@dataclass(frozen=True)
class TuneDocument(Envelope):
    """What `vmapdbg tune --json` prints: the head of the unchanged program's capture, the proposals, what was tried,
    and what was not, because the `budget` (seconds) was over. `by` is time or memory, `number` what one run of the
    unchanged program needs, in seconds or bytes. `longest` is the kernel that takes most of the time, `share` its share
    of the time in kernels, and `device` what the device reaches."""

    kind: Literal["tune"]
    by: str
    budget: float
    seconds: float
    runs: int
    number: float
    proposals: tuple[search.Proposal, ...]
    tried: tuple[search.EditTrial, ...]
    untried: tuple[search.EditTrial, ...]
    longest: Kernel | None
    share: float
    device: Device | None


DOCUMENTS: dict[str, type] = {
    "capture": Capture,
    "diff": CaptureDiff,
    "suite-diff": SuiteDiff,
    "graph": Graph,
    "lint": LintDocument,
    "lint-files": LintFilesDocument,
    "run": RunDocument,
    "check": CheckDocument,
    "run-check": ProgramCheck,
    "why-value": ValueDocument,
    "bisect": BisectDocument,
    "bisect-commits": History,
    "bisect-decisions": DecisionsDocument,
    "tune": TuneDocument,
}
"""The dataclass of each kind of document."""
