"""What the tool and its children exchange: the job, the requests to a child, and the result of a run. A request is one
JSON document on the child's command line; in it, patches are written as for `--patches`."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from vmapdbg.install.patches import ALL, Patches, format_patches, parse_patches, patch_states
from vmapdbg.install.targets import DEFAULT_TARGET
from vmapdbg.model.capture import Capture, Finding

TUNED = "tuned"  # the value of `Job.measured` for `tune`: launches are repeated, and the fastest counts
UNWRITTEN = 74  # the exit status of a child that could not write its result: EX_IOERR of sysexits.h


@dataclass(frozen=True, order=True)
class Choice:
    """A decision that replaces the scheduler's: a node of a schedule, by its id and op, is written to a buffer
    (`realized`), or is not although a rule asks for it. Only if tinygrad is observed."""

    schedule: int
    node: int
    op: str
    realized: bool = True


@dataclass(frozen=True)
class Job:
    """A snippet, and how it is run. `arguments` are for the snippet. `patches` is None for a tinygrad that is observed
    without the overlay. `timeout` is in seconds, None for no limit. With `values` the tensors that the snippet realizes
    are read into the Capture.

    `tree` names the tinygrad (see `vmapdbg.install.trees`), `python` the interpreter; if empty, the tool's own.
    `choices` replace decisions of the scheduler. With `times` every launch is waited for and timed, and what the
    snippet leaves lazy is run. With `memory` tinygrad's memory is watched, and if the snippet runs nothing, what it
    leaves lazy is run. `typed` is `-c` or `-` if the tool wrote the snippet's file. `measured` is what `bisect`
    measures: then BEAM searches nothing, and for `memory` no schedule is recorded, because records keep memory. `TUNED`
    repeats launches. With `beam` BEAM searches that wide for the kernels `searched`, by key; without it they are timed
    with other optimizations, too. `edits` is a file that
    `tune` wrote: the text of each edited file. `switches` are environment variables for the snippet (`PCONTIG=2`).
    With `gradients`, `check` compares them with finite differences."""

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
    measured: str = ""
    beam: int = 0
    searched: tuple[str, ...] = ()
    memory: bool = False
    edits: str = ""
    switches: tuple[str, ...] = ()
    gradients: bool = False

    @property
    def folder(self) -> Path:
        """The folder that the snippet imports from first, as in Python: its own, or the working directory."""
        return Path.cwd() if self.typed else Path(self.snippet).resolve().parent

    @property
    def is_compared(self) -> bool:
        """Whether another run is compared with it, or measured beside it: then its random numbers have a fixed seed."""
        return self.values or bool(self.measured)

    @property
    def patch_states(self) -> dict[str, bool]:
        """Every patch with its state, as in a Capture; empty for stock tinygrad."""
        return {} if self.patches is None else patch_states(self.patches)


@dataclass(frozen=True)
class Run:
    """One run of a job: its Capture, and what the snippet printed. Without a capture, its error is a ChildDied."""

    capture: Capture
    stdout: bytes = b""
    stderr: bytes = b""

    @property
    def printed(self) -> str:
        """What the snippet printed on stdout, as text."""
        return self.stdout.decode("utf-8", "backslashreplace")


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request to a child: run the job and capture it. The requests to other children add fields. `folder` is a
    temporary folder for the child: it writes its result to `output`, and lines about its progress to `progress`.
    `evidence` is the folder with what `check` compares, None without a comparison: the child that runs the snippet
    fills it, and then realizes what the snippet leaves lazy; the other children read it. `tinygrad` is the folder of
    the job's tree, empty for the tinygrad that the interpreter finds, and `commit` its commit, if it has one.
    `lifeline` is the reading end of a pipe without a writer, -1 for none: it closes when the tool ends, and the child
    then ends, too. With `shadow`, what was captured is reported even if the child dies. `module` answers the
    request."""

    module: ClassVar = "vmapdbg.child.run_snippet"
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
        """A file with the process id of the shadow, if the child has one."""
        return Path(self.folder) / "shadow"


COUNTS = "counts"  # the folder of a program's processes with one file for each of them: its account, then zeros
SCHEDULE_FILES = "schedule-*.pickle"  # the files in the folder `evidence`: one for each schedule and each replay


@dataclass(frozen=True, kw_only=True)
class CheckRequest(Request):
    """Asks for a comparison with the numpy reference while the evidence is written: by the job's snippet, or, if
    `evidence` is None, by processes that write to `folder`. `output` gets a line of JSON for each schedule."""

    module = "vmapdbg.child.compare.checker"

    @property
    def over(self) -> Path:
        """A file that the tool makes when the snippet or the program has ended and the evidence is complete."""
        return Path(self.folder) / "over"


@dataclass(frozen=True, kw_only=True)
class ValueRequest(Request):
    """Asks for the outputs' values after each pass, in `schedule` (None: all) of `subject`, the command's SUBJECT."""

    module = "vmapdbg.child.passes.follow"
    schedule: int | None = None
    subject: str | None = None


@dataclass(frozen=True, kw_only=True)
class TrialRequest(Request):
    """Asks for runs of many programs instead of the snippet. `preloads` imports tinygrad first: they must not set its
    environment. With `evidence` their values are compared; `checks` gets a line for each schedule."""

    module = "vmapdbg.child.trials"
    preloads: bool = True

    @property
    def checks(self) -> Path:
        return Path(self.folder) / "checks"


@dataclass(frozen=True)
class LintedSchedule:
    """What a process under `run --lint` found in a schedule: how many `kernels` were new to it, how many of these are
    `undecided` (with an unknown address), and why it `failed` to be checked."""

    kernels: int = 0
    undecided: int = 0
    findings: tuple[Finding, ...] = ()
    failed: str | None = None


def dump_record(record: Job | Request, indent: int | None = None) -> str:
    """Returns a job or a request as JSON text."""
    return json.dumps(asdict(record), default=format_patches, indent=indent)


def load_job(text: str) -> Job:
    """Reads the text of a job that `dump_record` wrote. Raises ValueError, KeyError or TypeError for other text."""
    return _build_job(json.loads(text))


R = TypeVar("R", bound=Request)


def load_request(kind: type[R], text: str) -> R:
    """Reads the text of a request that `dump_record` wrote."""
    fields = _make_tuples(json.loads(text))
    fields["job"] = _build_job(fields["job"])
    return kind(**fields)


def _build_job(fields: dict[str, Any]) -> Job:
    if fields["patches"] is not None:
        fields = {**fields, "patches": parse_patches(str(fields["patches"]))}
    choices = tuple(Choice(**choice) for choice in fields.get("choices", ()))
    return Job(**_make_tuples({**fields, "choices": list(choices)}))


def _make_tuples(fields: dict[str, list[Any] | dict[str, Any] | str | float | None]) -> dict[str, Any]:
    """Turns the lists of JSON into tuples."""
    return fields | {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
