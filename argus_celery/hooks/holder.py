"""Who holds leases here: one random identity for each worker incarnation, and what proves another one dead.

The main process of a worker takes an identity and exports it, so that its pool children (forked or spawned) and threads
share it. The process id stands beside it: a worker started from inside another worker's environment takes its own.
"""

from __future__ import annotations

import os
import socket
import sys
import uuid
from contextlib import suppress
from pathlib import Path

from argus_celery.records import HolderFacts

HOLDER = "ARGUS_HOLDER"
HOLDER_PID = "ARGUS_HOLDER_PID"

_ZOMBIE = ("Z", "X", "x")

_taken_by: int | None = None
"""The process that took the exported identity. Not kept over an exec, which is a new incarnation."""


def take() -> str:
    """Be a worker's main process: take a new identity, once per process, and export it to the children."""
    global _taken_by
    pid = os.getpid()
    if _taken_by != pid:
        _taken_by = pid
        os.environ[HOLDER] = "w" + uuid.uuid4().hex
        os.environ[HOLDER_PID] = str(pid)
    return os.environ[HOLDER]


def holder() -> str:
    """The identity under which this process claims: its worker's, or one of its own outside any worker."""
    return os.environ.get(HOLDER) or take()


def main_pid() -> int:
    """The process id of the worker's main process."""
    return int(os.environ.get(HOLDER_PID) or os.getpid())


def facts(node: str) -> HolderFacts:
    """What this main process tells others about itself, so that they can prove its death later."""
    return _facts(holder(), node)


def _facts(identity: str, node: str) -> HolderFacts:
    pid = os.getpid()
    return HolderFacts(
        id=identity,
        node=node,
        host=socket.gethostname(),
        pid=pid,
        boot_id=_read("/proc/sys/kernel/random/boot_id"),
        pid_namespace=_pid_namespace(),
        process_start=(_process(pid) or ("", ""))[1],
    )


def is_provably_dead(other: HolderFacts, me: HolderFacts) -> bool:
    """Is that worker's main process surely gone? Only the same host, boot and pid namespace can tell; else False.

    The pool children of a main process die with it (``PR_SET_PDEATHSIG``). Elsewhere than on Linux the TTL decides.
    """
    if other.id == me.id or not _comparable(other, me):
        return False
    if (other.pid, other.process_start) == (me.pid, me.process_start):
        return True  # this very process was that worker, until it executed itself anew
    return _is_gone(other.pid, other.process_start)


def is_dead_seen_from_here(other: HolderFacts) -> bool:
    """The same, for a process that claims nothing, as a doctor; a worker may live in it."""
    return _comparable(other, _facts("", "")) and _is_gone(other.pid, other.process_start)


def _comparable(other: HolderFacts, me: HolderFacts) -> bool:
    place = (me.host, me.boot_id, me.pid_namespace)
    return all(place) and bool(other.process_start) and place == (other.host, other.boot_id, other.pid_namespace)


def _is_gone(pid: int, start: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it exists, as another user
    process = _process(pid)
    if process is None:
        return False  # hidden from us, or it ended just now: nothing is proven
    state, started = process
    return started != start or state in _ZOMBIE


def _process(pid: int) -> tuple[str, str] | None:
    """(state, start in clock ticks since boot) of a process; a leader that waits for its threads is not a zombie."""
    stat = _read(f"/proc/{pid}/stat")
    if not stat:
        return None
    # The command in parentheses may hold spaces and parentheses itself.
    rest = stat.rpartition(")")[2].split()
    state, threads, start = rest[0], int(rest[17]), rest[19]
    return ("S" if state in _ZOMBIE and threads > 1 else state), start


def _pid_namespace() -> str:
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def _read(path: str) -> str:
    if sys.platform != "linux":
        return ""
    with suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    return ""
