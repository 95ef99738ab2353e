"""Work in a process of its own, forked from this one, that may be killed at any instant."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

__tracebackhide__ = True
LOOK_EVERY = 0.005
_HERE = str(Path(__file__).parent)


class ApartError(AssertionError):
    """What a test had done in another process has failed there, or did not end."""


@dataclass(frozen=True, slots=True)
class Ended:
    killed: bool
    """By signal 9."""
    value: Any = None


def apart(work: Callable[[], Any], folder: Path, timeout: float) -> Ended:
    """Call this in a fork, with its output in ``folder/log``. Raises ``ApartError`` with what it has said if it fails.

    The value has to be one that can be pickled. The fork ends with the call: nothing that was begun here goes on there.
    """
    answer = folder / "answer"
    answer.unlink(missing_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads: it uses none of theirs
        pid = os.fork()
    if pid == 0:
        _be_apart(work, folder / "log", answer)
    status = _waited(pid, timeout)
    if status is None:
        raise ApartError(f"it did not end within {timeout:g} s. Its output:\n{tail(folder)}")
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return Ended(killed=True)
    if not answer.exists():
        raise ApartError(f"the process ended without an answer (status {status}). Its output:\n{tail(folder)}")
    failed, value = pickle.loads(answer.read_bytes())
    if failed:
        raise ApartError(f"{value}\nIts output:\n{tail(folder)}")
    return Ended(killed=False, value=value)


def tail(folder: Path, lines: int = 40) -> str:
    log = folder / "log"
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""


def _waited(pid: int, timeout: float) -> int | None:
    """Its status; None, and it is killed, if it does not end in time, or this process is told to stop waiting."""
    ends = time.monotonic() + timeout
    try:
        while time.monotonic() < ends:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                return status
            time.sleep(LOOK_EVERY)
    except BaseException:
        _kill(pid)
        raise
    _kill(pid)
    return None


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _be_apart(work: Callable[[], Any], log: Path, answer: Path) -> NoReturn:
    """The fork's life: whatever happens, it does not return into the tests."""
    try:
        _settle_in(log)
        try:
            said = (False, work())
        except BaseException:
            said = (True, _told())
        sys.stdout.flush()
        sys.stderr.flush()
        answer.with_suffix(".part").write_bytes(_pickled(said))
        answer.with_suffix(".part").rename(answer)
    finally:
        os._exit(0)


def _settle_in(log: Path) -> None:
    target = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(target, 1)
    os.dup2(target, 2)
    # What the tests have put in their place belongs to the tests' process.
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)


def _told() -> str:
    """The error in hand, without the frames of this package's own that lead to the test's."""
    told = traceback.TracebackException(*sys.exc_info())
    told.stack = traceback.StackSummary.from_list(
        [frame for frame in told.stack if not frame.filename.startswith(_HERE)] or told.stack
    )
    return "".join(told.format()).rstrip()


def _pickled(said: tuple[bool, Any]) -> bytes:
    try:
        return pickle.dumps(said)
    except Exception:
        return pickle.dumps((True, f"its answer cannot be pickled: {said[1]!r}"))
