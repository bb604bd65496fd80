"""The pytest plugin: `pytest --vmapdbg` runs tests on patched tinygrad, or observes the installed one, with fixtures
that compare schedules. Off by default: then it imports nothing, and tests that use its fixtures are skipped.

    capture                  `with capture() as c: ...`, then `c.kernels`, `c.schedules`, `c.findings`
    assert_kernels(n)        the last capture has n kernels
    assert_no_findings()     lint finds nothing in it

In `[tool.vmapdbg]` of a pyproject.toml, `target` and `patches` come from pytest's rootdir, because all tests run in one
process; `select` and `ignore` come from the folder of the test's file, or above it."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from vmapdbg.child.listen.recorder import Recorder
    from vmapdbg.model.capture import Capture, Finding, Kernel, Schedule


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("vmapdbg", "vmapdbg: schedules of tinygrad")
    group.addoption("--vmapdbg", action="store_true", help="Install vmapdbg's fixtures, and its patches if they fit.")
    strict = "Fail if a captured block launches what its capture does not show."
    group.addoption("--vmapdbg-strict", action="store_true", help=strict)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Installs the overlay before any conftest can import tinygrad; in an xdist worker too."""
    if getattr(early_config.known_args_namespace, "vmapdbg", False):
        early_config.stash[_INSTALLED] = install(early_config.rootpath)


def install(root: Path) -> "tuple[Recorder, str]":
    """Installs the overlay, or observes the tests' tinygrad, with the settings of `root`. Returns the paused recorder
    and the target. Raises pytest.UsageError, with one line."""
    from vmapdbg.child.listen import hooks
    from vmapdbg.child.listen.recorder import Recorder
    from vmapdbg.commands.shared.jobs import apply_settings, choose_tinygrad
    from vmapdbg.install import overlay
    from vmapdbg.install.job import Job
    from vmapdbg.install.patches import format_patches
    from vmapdbg.model.failure import Failure

    recorder = Recorder()
    # Tensors are made before a block, too: their lines are noted
    recorder.is_paused = True
    try:
        job = choose_tinygrad(apply_settings(Job(str(root / "tests"))), None)
        if job.patches is not None:
            overlay.check_installed()
            overlay.install(format_patches(job.patches))
        # raises RuntimeError if tinygrad is imported already
        hooks.start(recorder)
    except (Failure, overlay.OverlayError, RuntimeError) as error:
        raise pytest.UsageError(f"--vmapdbg: {error}") from None
    return recorder, job.target


class Captured:
    """What a `with capture() as c:` block scheduled, after the block has ended."""

    built: "Capture | None" = None

    @property
    def capture(self) -> "Capture":
        """The whole capture, as `vmapdbg show --json` prints it."""
        if self.built is None:
            raise RuntimeError("the capture exists when its with block has ended")
        return self.built

    @property
    def schedules(self) -> "tuple[Schedule, ...]":
        return self.capture.schedules

    @property
    def kernels(self) -> "tuple[Kernel, ...]":
        """The compute kernels of all schedules, in order."""
        return self.capture.kernels

    @property
    def findings(self) -> "tuple[Finding, ...]":
        """The findings of lint, without the findings that comments on your lines exclude."""
        return self.capture.findings


_INSTALLED = pytest.StashKey["tuple[Recorder, str]"]()
"""The recorder and the target of the process; nothing without --vmapdbg."""


class Session:
    """The captures of one test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.config = request.config
        self.test_file = Path(str(request.node.path))
        self.last: Captured | None = None

    @contextmanager
    def capture(self) -> Generator[Captured]:
        from vmapdbg.child.live import build_live_capture, recording
        from vmapdbg.commands.shared.children import finish_capture
        from vmapdbg.commands.shared.jobs import add_findings
        from vmapdbg.model.failure import Failure
        from vmapdbg.page.claims import SHOWN, account_of_shown, say_left

        captured = Captured()
        recorder, target = self.config.stash[_INSTALLED]
        with recording(recorder) as schedules:
            yield captured
            built = replace(build_live_capture(schedules, target), account=recorder.tally.settle())
        try:
            captured.built = add_findings(finish_capture(built), str(self.test_file))
        except Failure as error:
            # a pyproject.toml between the test and pytest's rootdir is wrong
            pytest.fail(f"vmapdbg: {error}", pytrace=False)
        self.last = captured
        left = account_of_shown(captured.capture).left
        if left and self.config.getoption("--vmapdbg-strict"):
            pytest.fail(f"vmapdbg: {say_left(SHOWN, left).removeprefix('; ')}", pytrace=False)

    def need_last(self) -> Captured:
        if self.last is None:
            pytest.fail("nothing was captured in this test yet: with capture() as c: ...", pytrace=False)
        return self.last


@pytest.fixture
def _vmapdbg(request: pytest.FixtureRequest) -> Session:
    if _INSTALLED not in request.config.stash:
        pytest.skip("needs pytest --vmapdbg")
    return Session(request)


@pytest.fixture
def capture(_vmapdbg: Session) -> Callable[[], AbstractContextManager[Captured]]:
    """`with capture() as c:` captures every schedule that the block makes; see `Captured`."""
    return _vmapdbg.capture


@pytest.fixture
def assert_kernels(_vmapdbg: Session) -> Callable[[int], None]:
    """`assert_kernels(2)`: the last capture has two compute kernels."""

    def check(count: int) -> None:
        __tracebackhide__ = True
        kernels = _vmapdbg.need_last().kernels
        if len(kernels) != count:
            listed = "".join(f"\n  {kernel.name}  {', '.join(kernel.lines)}" for kernel in kernels)
            pytest.fail(f"{len(kernels)} kernels, not {count}:{listed}", pytrace=False)

    return check


@pytest.fixture
def assert_no_findings(_vmapdbg: Session) -> Callable[..., None]:
    """`assert_no_findings()`, or `assert_no_findings("VD101", "VD105")`: lint finds nothing in the last capture."""

    def check(*codes: str) -> None:
        __tracebackhide__ = True
        from vmapdbg.model.wording import format_plural

        found = [finding for finding in _vmapdbg.need_last().findings if not codes or finding.code in codes]
        if found:
            listed = "".join(f"\n  {item.code} {item.line or ''}: {item.message}; try: {item.advice}" for item in found)
            pytest.fail(f"{format_plural(len(found), 'finding')}:{listed}", pytrace=False)

    return check
