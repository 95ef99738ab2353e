"""Tell a run that its lease is lost, by the strongest honest means of the pool. The fence stays the real protection.

==================  ==================================================================================================
prefork, solo       a signal to the process; its handler raises ``LeaseLost`` in the body, also out of a sleep
threads             an asynchronous ``LeaseLost`` in the thread; a C call that blocks is not cut short
gevent, eventlet    ``LeaseLost`` is thrown into the greenlet at its next switch
coroutines          are cancelled at what they await, in every pool
everywhere          ``current.lost`` is set
==================  ==================================================================================================

A signal names a process, not a task: the main process first writes the claim that was lost into a file named for the
child, and the child's handler raises only if that very claim is in hand and its body is running.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import shutil
import signal
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from celery.signals import worker_process_init

from argus_celery.errors import LeaseLost
from argus_celery.run import Run, running

TOLD_DIR = "ARGUS_TOLD_DIR"
FOLDER = "argus-told-"
OLD = 3600.0
"""Seconds after which the folder of a process that is not to be seen here any more is taken for left behind."""
# Ignored by default: a process that has not installed the handler yet, or took over the pid, is not harmed.
_SIGNAL = getattr(signal, "SIGURG", None)

_listening_pid: int | None = None

Held = tuple[str, int]
"""(task id, claim token)"""


def prepare() -> None:
    """In the main process, before the pool starts: a private folder for what children are told."""
    _remove_old()
    folder = tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-")
    os.environ[TOLD_DIR] = folder
    atexit.register(_remove, folder, os.getpid())


def tell(claim: Held, pool: Any, pid: int | None) -> None:
    """Tell the run of this claim, here or in its pool child. A claim that is not in hand there is ignored."""
    if not interrupt(claim) and is_child(pool, pid):
        assert pid is not None
        _signal_child(claim, pid)


def interrupt(claim: Held) -> bool:
    """Raise ``LeaseLost`` in the run of this claim, if it is in this process; False if it is not."""
    run = running.get(claim)
    if run is None:
        return False
    run.lost.set()
    if run.stop is not None:
        _cancel(run)
    elif run.greenlet is None and run.thread_ident == threading.get_ident():
        _raise_here(run)  # a signal handler on top of solo's body
    else:
        _interrupt(run, LeaseLost)
    return True


def is_child(pool: Any, pid: int | None) -> bool:
    """Is this a process of the pool? (Under gevent and eventlet it is a greenlet's id, in threads our own.)"""
    find = getattr(getattr(pool, "_pool", None), "_process_by_pid", None)
    return find is not None and pid is not None and find(pid)[0] is not None


def _cancel(run: Run) -> None:
    """Without the lock, which the code below a signal handler may hold: a coroutine that has ended is not harmed."""
    stop = run.stop
    if stop is not None and not run.told:
        run.told = True
        stop(_lost(run))


def _lost(run: Run) -> LeaseLost:
    return LeaseLost(f"task {run.claim.task_id}: the lease with token {run.claim.token} is lost")


def _interrupt(run: Run, error: type[BaseException]) -> None:
    with run.lock:
        if not run.in_body or run.ended or run.told:
            return
        if run.greenlet is not None:
            run.told = True
            _throw(run.greenlet, error)
        elif _listening_pid == os.getpid() and run.thread_ident == threading.main_thread().ident:
            _write((run.claim.task_id, run.claim.token), os.getpid())
            signal.pthread_kill(run.thread_ident, _SIGNAL)  # type: ignore[arg-type]
        else:
            run.told = True
            raise_in_thread(run.thread_ident, error)


def raise_in_thread(ident: int, error: type[BaseException] | None) -> None:
    """Raise in another thread between two of its bytecodes; ``None`` takes back what was not raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), error and ctypes.py_object(error))


def _throw(greenlet: Any, error: type[BaseException]) -> None:
    try:
        greenlet.kill(error(), block=False)
    except TypeError:
        greenlet.kill(error)  # eventlet


def _signal_child(claim: Held, pid: int) -> None:
    if _SIGNAL is not None and _write(claim, pid):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, _SIGNAL)


def _write(claim: Held, pid: int) -> bool:
    folder = os.environ.get(TOLD_DIR)
    if not folder:
        return False
    whole = Path(folder, f"{pid}.new")
    with suppress(OSError):
        whole.write_text(json.dumps(claim))
        whole.replace(Path(folder, str(pid)))
        return True
    return False


@worker_process_init.connect(weak=False)
def listen(**_: Any) -> None:
    """In a pool child (and in solo's only process): be ready to be told."""
    global _listening_pid
    if _SIGNAL is None or not os.environ.get(TOLD_DIR):
        return
    with suppress(ValueError):  # not the main thread: an embedded worker is told as a thread is
        signal.signal(_SIGNAL, _on_signal)
        _listening_pid = os.getpid()


def _on_signal(_signum: int, _frame: FrameType | None) -> None:
    run = running.get(_told_claim())
    if run is not None:
        run.lost.set()
        _cancel(run)
        _raise_here(run)


def _raise_here(run: Run) -> None:
    # Locked: the code below us is entering or leaving the body right now.
    if run.in_body and not run.ended and not run.told and not run.lock.locked():
        run.told = True
        raise _lost(run)


def _told_claim() -> Held:
    with suppress(OSError, ValueError):
        task_id, token = json.loads(Path(os.environ[TOLD_DIR], str(os.getpid())).read_text())
        return task_id, token
    return "", 0


def _remove(folder: str, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_old() -> None:
    """What killed workers have left behind."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*-*"):
        with suppress(OSError, ValueError):
            pid = int(folder.name.removeprefix(FOLDER).split("-")[0])
            if time.time() - folder.stat().st_mtime > OLD and not _is_running(pid):
                shutil.rmtree(folder, ignore_errors=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's
    return True
