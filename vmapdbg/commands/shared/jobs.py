"""From the command line to a capture: decides snippet, options, settings and tinygrad; runs it, or reads a file."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeGuard

from vmapdbg.commands.shared.children import import_meanwhile, run_job, run_quietly
from vmapdbg.commands.shared.console import report_death, report_untimed, say, say_once, show_progress
from vmapdbg.commands.shared.options import JobOptions
from vmapdbg.commands.shared.settings import find_settings
from vmapdbg.commands.shared.work_folder import file_of_code, recall_job, remember_job
from vmapdbg.install.job import Job
from vmapdbg.install.overlay import TINYGRAD_VERSION, find_editable
from vmapdbg.install.patches import ALL, Patches, spell_patches
from vmapdbg.install.targets import DEFAULT_TARGET
from vmapdbg.install.trees import Tree, check_version, find_imported, find_tree, is_checkout, is_release, parse_name
from vmapdbg.model.capture import Capture, Finding
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import load_capture
from vmapdbg.model.wording import format_known

_OLDEST_PYTHON = (3, 11)
# run by the interpreter of --python, before a child is started with it
_PROBE = """import importlib.util, sys
spec = importlib.util.find_spec('tinygrad')
print(*sys.version_info[:2], spec is not None and spec.origin is not None)"""


def load_or_run(snippet: str | None, given: JobOptions, quiet_stdout: bool = True) -> Capture:
    """Returns the capture of a saved file, or of a run of the snippet, which is remembered if it ends well. The snippet
    prints to stderr, or with `quiet_stdout=False` to stdout. Raises Failure as `load_saved` does."""
    if is_saved(snippet):
        return load_saved(snippet, given)
    job = read_job(snippet, given)
    capture = capture_job(choose_tinygrad(job, given.patches), quiet_stdout)
    if capture.error is None:
        remember(job, snippet, given)
    if given.times:
        report_untimed(capture)
    return capture


def run_optimized(snippet: str | None, given: JobOptions, beam: int, searched: tuple[str, ...]) -> Capture:
    """Returns the capture of a timed run in which BEAM optimizes the kernels with some keys, or, without a width of
    BEAM, in which these are timed with other optimizations, too. Its output is dropped."""
    job = replace(make_job(snippet, given), beam=beam, searched=searched)
    with show_progress(f"running {job.snippet} with {f'BEAM={beam}' if beam else 'other optimizations'}"):
        return run_quietly(job).capture


def is_saved(snippet: str | None) -> TypeGuard[str]:
    """Tells whether a SNIPPET is a saved capture."""
    return snippet is not None and snippet.endswith(".json")


def load_saved(file: str, given: JobOptions) -> Capture:
    """Reads a saved capture. Raises Failure for options, which cannot change it, or if --memory has nothing to show."""
    if given.values.keys() - {"memory"}:
        raise Failure(f"{file} is a saved capture: it has its own code, arguments, patches, target, tinygrad and times")
    capture = load_capture(file)
    if given.memory and capture.peak_bytes is None:
        raise Failure(f"{file} was saved without --memory")
    return capture


def capture_job(job: Job, quiet_stdout: bool = True) -> Capture:
    """Runs the job. With `quiet_stdout` what the snippet prints goes to stderr, because stdout carries data."""
    stdout = sys.stderr.fileno() if quiet_stdout else None
    with show_progress(f"working on {job.snippet}", wait=True) as progress:
        import_meanwhile("vmapdbg.page.text.run")  # these modules take a third of a second to import
        capture = run_job(job, stdout, progress=progress, shadow=True)
    report_death(capture)
    capture = add_findings(capture)
    report_mistakes(capture.findings, capture.sources)
    return capture


def add_findings(capture: Capture, file: str | None = None) -> Capture:
    """Returns the capture with lint's findings, unless comments or settings (of `file` or the snippet) exclude them."""
    from vmapdbg.lint import lint_capture
    from vmapdbg.lint.ignores import split_ignored

    codes = find_settings(capture.snippet if file is None else file).choose_codes()
    return replace(capture, findings=split_ignored(lint_capture(capture, codes=codes), capture.sources)[0])


def report_mistakes(findings: Iterable[Finding], sources: Mapping[str, str] | None = None) -> None:
    """Says, once each, which comments on the findings' lines cannot ignore a code. `sources`: see `split_ignored`."""
    from vmapdbg.lint import CODES
    from vmapdbg.lint.ignores import list_mistakes

    for mistake in list_mistakes(findings, CODES, sources):
        say_once(mistake)


def make_job(snippet: str | None, given: JobOptions) -> Job:
    """Returns and remembers the job of a snippet (None: the remembered job), its tinygrad chosen. Raises Failure."""
    return choose_tinygrad(make_open_job(snippet, given), given.patches)


def make_open_job(snippet: str | None, given: JobOptions) -> Job:
    """Does the same, and leaves open which tinygrad the job runs on."""
    job = read_job(snippet, given)
    remember(job, snippet, given)
    return job


def remember(job: Job, snippet: str | None, given: JobOptions) -> None:
    """Remembers the job of a snippet or of code; a job that was remembered already stays as it is."""
    if snippet is not None or given.code is not None:
        remember_job(replace(job, times=False, memory=False))


def read_job(snippet: str | None, given: JobOptions) -> Job:
    """Returns the job for a snippet, or the remembered job with the given options. Raises Failure."""
    snippet, typed = file_of_code(snippet, given.code)
    if snippet is None:
        job = recall_job()
        check_snippet(job.snippet)
        job = apply_options(job, given)
        # with the options that are not the default
        say(f"using {job.snippet}, from the last show{format_known(' with {}', ' '.join(spell_job_options(job)))}")
        return job
    if is_saved(snippet):
        raise Failure(f"{snippet} is a saved capture: this command runs a snippet")
    check_snippet(snippet)
    return apply_options(apply_settings(Job(snippet, typed=typed)), given)


def apply_options(job: Job, given: JobOptions) -> Job:
    """Returns the job with the given options."""
    return replace(job, **replace(given, code=None).values)


def apply_settings(job: Job) -> Job:
    """Returns the job with the settings in the pyproject.toml of its snippet."""
    settings = find_settings(job.snippet)
    return apply_options(job, JobOptions(settings.target, settings.patches, settings.timeout))


def spell_job_options(job: Job) -> list[str]:
    """Returns the options of a job that are not the default, and its arguments, as they are written after SNIPPET."""
    options = {
        "--patches": "" if job.patches in (None, ALL) else spell_patches(job.patches),
        "--target": "" if job.target == DEFAULT_TARGET else job.target,
        "--tinygrad": job.tree,
        "--python": job.python,
        "--": shlex.join(job.arguments),
    }
    return [f"{name} {value}" for name, value in options.items() if value]


def check_snippet(snippet: str) -> None:
    """Raises Failure if a snippet is not a file that Python can run."""
    path = Path(snippet)
    if path.is_dir():
        raise Failure(f"{snippet} is a directory, not a Python file")
    if not path.exists():
        raise Failure(f"there is no file {snippet}")
    if not os.access(path, os.R_OK):
        raise Failure(f"{snippet} cannot be read")
    if path.suffix == ".ipynb":
        raise Failure(f"{snippet} is a notebook: jupyter nbconvert --to script {snippet} makes a Python file of it")


def choose_tinygrad(job: Job, given: Patches | None) -> Job:
    """Returns the job with its tree, and without patches (observed) if the overlay does not patch this tinygrad. Names
    on stderr a tinygrad that the user did not name. `given` are the patches on the command line. Raises Failure if the
    tinygrad does not exist or cannot be patched."""
    if job.python:
        check_python(job)
    if job.tree:
        name = f"tinygrad {fetch_tree(job.tree).title}"
    elif job.python:
        name = f"the tinygrad of {job.python}"
    else:
        # `python snippet.py` in a checkout imports that checkout if it is on Python's path, as it is for its developers
        if is_checkout(Path.cwd()):
            job, tree = replace(job, tree="."), fetch_tree(".")
            name = f"the tinygrad of this folder, {tree.title}"
        else:
            tree = find_installed(job.folder)
            name = f"tinygrad {tree.title} in {tree.folder}"
            if tree.version == TINYGRAD_VERSION:
                name += f", which is not an unchanged checkout of the tag v{TINYGRAD_VERSION}"
            if tree.folder == find_editable():
                # named here, because the child would import a folder of that name without an __init__.py first
                job = replace(job, tree=str(tree.folder))
        if is_release(tree):
            return job
        check_version(tree.version, str(tree.folder), tree.folder)
        say_once(f"observing {name}; the patches need the release {TINYGRAD_VERSION}")
    if given:
        raise Failure(f"the patches need tinygrad {TINYGRAD_VERSION} beside vmapdbg: {name} is observed as it is")
    return replace(job, patches=None)


def find_installed(folder: Path) -> Tree:
    """Returns the tinygrad that a snippet imports: from its `folder`, else the tool's Python path. Raises Failure."""
    # in the child, the snippet's folder replaces the working directory
    others = [entry for entry in sys.path if Path(entry or os.curdir).resolve() != Path.cwd()]
    if (tree := find_imported([str(folder), *others])) is None:
        other = "to look at another one, --tinygrad 0.14.0 (a release or a folder) or --python PATH"
        raise Failure(f"tinygrad is not installed: pip install tinygrad=={TINYGRAD_VERSION} for the patches; {other}")
    package = tree.folder / "tinygrad"
    if not (package / "tensor.py").is_file():
        raise Failure(f"{package} would be imported as tinygrad, and is none: it has no tensor.py")
    return tree


def fetch_tree(name: str) -> Tree:
    """Returns a tree by its name, and shows progress while a release is fetched. Raises TreeError."""
    if parse_name(name).release is None:
        return find_tree(name)
    with show_progress(f"looking for tinygrad {name}"):
        return find_tree(name)


def check_python(job: Job) -> None:
    """Raises Failure unless the interpreter of --python can run the job."""
    if (python := shutil.which(job.python)) is None:
        raise Failure(f"--python: there is no program {job.python}")
    try:
        done = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, timeout=60, check=False)
        major, minor, has_tinygrad = done.stdout.split()
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise Failure(f"--python: {job.python} is not a Python interpreter") from None
    if (int(major), int(minor)) < _OLDEST_PYTHON:
        oldest = ".".join(map(str, _OLDEST_PYTHON))
        raise Failure(f"--python: {job.python} is Python {major}.{minor}, and vmapdbg needs {oldest} or later")
    if has_tinygrad == "False" and not job.tree:
        raise Failure(f"--python: {job.python} has no tinygrad (--tinygrad names one)")
