"""What operating systems do differently, and what the tool does without it. No other module asks for the system. Linux
has all of it. Elsewhere (macOS) a child of a killed tool ends a little later, and nothing is shown of a program whose
process dies. On Windows nothing runs; saved captures can be read."""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import IO

from vmapdbg.model.failure import Failure

Stream = int | IO[bytes] | None  # where a child's stdout or stderr goes; None is the tool's stream
IS_LINUX = hasattr(os, "pidfd_open")
CAN_FORK = sys.platform != "darwin"
"""Whether a process that has imported tinygrad can be forked: Metal does not work in such a fork."""
_PR_SET_PDEATHSIG = 1


def count_cores() -> int:
    """Returns how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if IS_LINUX else os.cpu_count() or 1


# *** the parent's side


def start_group(
    command: list[str], env: Mapping[str, str], lifeline: int, stdin: Stream, stdout: Stream, stderr: Stream
) -> subprocess.Popen[bytes]:
    """Starts a process that gets `lifeline`, in its own group, to end all with it. Raises Failure on Windows."""
    if os.name == "nt":
        raise Failure("programs run on Linux and macOS; on Windows they run in WSL")
    return subprocess.Popen(
        command, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True, pass_fds=(lifeline,)
    )


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and all that it started."""
    # the group may be gone; if only zombies are left in it, macOS raises PermissionError
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


# *** the child's side


def hold(lifeline: int) -> None:
    """Watches the reading end of a pipe; negative: no pipe. When the tool, which holds the other end, ends, even by
    SIGKILL, kills this group: on Linux also in a C call that lets no other thread run, elsewhere after the call."""
    if lifeline < 0:
        return
    if IS_LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch() -> None:
        try:
            os.read(lifeline, 1)
        except OSError:
            return  # the snippet closed it
        # a child that was started by hand has no group of its own
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def fork_unseen(owner: int, work: Callable[[], object]) -> int:
    """Forks this process, whose pidfd is `owner`, and returns the fork's id. When this process has died, the fork calls
    `work`. `os.wait()` does not find it. Only on Linux: elsewhere a fork with threads, or a GPU, may not go on."""
    reads, writes = os.pipe()
    # the child in between is none of the program's: its handler must not hear of it; only the main thread sets one
    handler = signal.getsignal(signal.SIGCHLD)
    is_muted = callable(handler) and threading.current_thread() is threading.main_thread()
    if is_muted:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            os.write(writes, str(os.getpid()).encode())
            _work_when_dead(owner, work)
        os._exit(0)
    # it is gone already if the program ignores SIGCHLD
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
    if is_muted:
        signal.signal(signal.SIGCHLD, handler)
    os.close(writes)
    fork = int(os.read(reads, 20))
    os.close(reads)
    return fork


def _work_when_dead(owner: int, work: Callable[[], object]) -> None:
    try:
        # the program's handlers of signals are not for the fork
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        select.select([owner], [], [])  # readable when the process ends
        work()
    finally:
        os._exit(0)
