"""What the tool and its children say to each other: the job, what a child is asked for, and what came of a run.

A request goes to the child as one JSON document on its command line; in it, and in `.vmapdbg/last.json`, patches are
spelled as for `--patches`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from vmapdbg.install.patches import ALL, Patches, format_patches, parse_patches, patch_states
from vmapdbg.install.targets import DEFAULT_TARGET
from vmapdbg.model.capture import Capture, Finding, Schedule


@dataclass(frozen=True, order=True)
class Choice:
    """A decision that is made for the scheduler: a node of a schedule, by its id and op, is written to a buffer
    (`realized`), or is not where a rule asks for it. Only where tinygrad is observed."""

    schedule: int
    node: int
    op: str
    realized: bool = True


@dataclass(frozen=True)
class Job:
    """A snippet, and how it is run.

    `arguments` are the snippet's own. `patches` is None for a tinygrad that is observed as it is, without the overlay.
    `timeout` is in seconds, None waits for ever. With `values` the tensors that the snippet realizes are read into the
    Capture. `tree` names the tinygrad (see `vmapdbg.install.trees`), and `python` the interpreter; empty ones are those
    that the tool itself has. `choices` are made in place of the scheduler's own. With
    `times` every launch is waited for and timed, and what the snippet leaves lazy is run. `typed` is `-c` or `-` where
    the snippet is a file of the tool's with code that was typed or came from stdin.
    """

    snippet: str
    arguments: tuple[str, ...] = ()
    target: str = DEFAULT_TARGET
    patches: Patches | None = ALL
    timeout: float | None = None
    values: bool = False
    tree: str = ""
    python: str = ""
    choices: tuple[Choice, ...] = ()
    times: bool = False
    typed: str = ""

    @property
    def folder(self) -> Path:
        """The folder that the snippet imports from first, as Python has it: its own, or the working directory."""
        if self.typed:
            return Path.cwd()
        return Path(self.snippet).resolve().parent

    @property
    def patch_states(self) -> dict[str, bool]:
        """Every patch with its state, as a Capture has it; none for stock tinygrad."""
        return {} if self.patches is None else patch_states(self.patches)


@dataclass(frozen=True)
class Run:
    """One run of a job: its Capture, or how its child died (one line), and what the snippet printed."""

    capture: Capture | None
    died: str | None
    stdout: bytes = b""
    stderr: bytes = b""

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """The schedules of the Capture; none where the child died."""
        if self.capture is None:
            return ()
        return self.capture.schedules


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a child is asked for: to run the job and capture it. The requests of the other children add to it.

    `folder` is the child's own, which the launcher makes: it writes its result to `output`, and while it works a line
    that says how far it is to `progress`. `evidence` is the folder with what `check` compares: the child that runs the
    snippet fills it, and then realizes what the snippet leaves lazy; the other children read it. None where nobody
    needs it. `tinygrad` is the folder of the job's tree, empty for the tinygrad that the interpreter finds by itself,
    and `commit` its commit, where it has one. `lifeline` is the reading end of a pipe that nobody writes to, -1 for
    none: it ends with the tool, and the child with it. With `shadow` what was captured is
    reported though the child dies.
    """

    job: Job
    folder: str = ""
    evidence: str | None = None
    tinygrad: str = ""
    commit: str | None = None
    lifeline: int = -1
    shadow: bool = False

    @property
    def output(self) -> Path:
        return Path(self.folder) / "output.json"

    @property
    def progress(self) -> Path:
        return Path(self.folder) / "progress"

    @property
    def shadow_id(self) -> Path:
        """Has the process id of the shadow, where there is one."""
        return Path(self.folder) / "shadow"


@dataclass(frozen=True, kw_only=True)
class CheckRequest(Request):
    """Asks for a comparison of the evidence with the numpy reference, while the evidence is being written."""

    @property
    def over(self) -> Path:
        """A file that the tool writes when the snippet is done and all the evidence is there. It is JSON: how much
        there is to compute for each schedule, in any unit. How long the rest takes is estimated by it; the list is
        empty where that is not known."""
        return Path(self.folder) / "over"

    @property
    def compared(self) -> Path:
        """A file with the number of each schedule that was compared before the snippet was done, a line for each."""
        return Path(self.folder) / "compared"


@dataclass(frozen=True, kw_only=True)
class ValueRequest(Request):
    """Asks for the values of the outputs after each pass of the scheduler; `schedule` is the number of the only one
    that is looked at, None: all of them. `subject` says which nodes are asked about, as it is typed: their own values
    are followed, too."""

    schedule: int | None = None
    subject: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReduceRequest(Request):
    """Asks for a small snippet that comes out differently for `job` and for `other`, the same with other patches. Where
    `other` is None, for one that goes wrong in the same way for `job` alone: it raises or hangs at the same place, or
    has other values than the numpy reference.

    `by` says what must differ (a kind of `vmapdbg.bisect`). Smaller graphs are tried for `seconds`; one that runs
    longer than `hang` seconds is taken to hang. `comment` stands on top of the snippet. `terms` has for each schedule
    how many numbers it sums up, as `vmapdbg.diff.values` estimates it.
    """

    other: Job | None
    by: str
    seconds: float
    hang: float
    comment: str
    terms: tuple[int, ...]


@dataclass(frozen=True)
class LintedSchedule:
    """What a process under `run --lint` found in one schedule. `kernels` counts those that it had not seen before,
    `undecided` those of them with an address that could not be told. `failed` says why it could not be looked at."""

    kernels: int = 0
    undecided: int = 0
    findings: tuple[Finding, ...] = ()
    failed: str | None = None


def dump_record(record: Job | Request, indent: int | None = None) -> str:
    """Returns a job or a request as JSON."""
    return json.dumps(asdict(record), default=format_patches, indent=indent)


def load_job(text: str) -> Job:
    """Reads what `dump_record` wrote of a job. Raises ValueError, KeyError or TypeError for anything else."""
    return _build_job(json.loads(text))


R = TypeVar("R", bound=Request)


def load_request(kind: type[R], text: str) -> R:
    """Reads what `dump_record` wrote of a request of that kind."""
    fields = _make_tuples(json.loads(text))
    for name in ("job", "other"):
        if fields.get(name) is not None:
            fields[name] = _build_job(fields[name])
    return kind(**fields)


def _build_job(fields: dict[str, Any]) -> Job:
    if fields["patches"] is not None:
        fields = {**fields, "patches": parse_patches(str(fields["patches"]))}
    choices = tuple(Choice(**choice) for choice in fields.get("choices", ()))
    return Job(**_make_tuples({**fields, "choices": list(choices)}))


def _make_tuples(fields: dict[str, list[Any] | dict[str, Any] | str | float | None]) -> dict[str, Any]:
    """JSON has lists where a record has tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
