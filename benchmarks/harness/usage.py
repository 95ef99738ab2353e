"""What processes and the database have used: CPU seconds, memory, commits, fsyncs and bytes of write-ahead log."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import psutil
import psycopg


def cpu(*pids: int) -> float:
    """CPU seconds of these processes and of their descendants, those that have ended too."""
    return sum(_cpu(pid) for pid in pids)


def _cpu(pid: int) -> float:
    total = 0.0
    for process in _family(pid):
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def memory(*pids: int) -> float:
    """MiB of these processes and their descendants; what they share is counted once."""
    total = 0
    for process in (one for pid in pids for one in _family(pid)):
        with suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total / 2**20


def _family(pid: int) -> Iterable[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


@dataclass(frozen=True)
class Counters:
    """PostgreSQL's own counts: commits of one database; syncs and bytes of the whole server, which is to be idle."""

    commits: int = 0
    syncs: int = 0
    wal: int = 0

    def since(self, before: Counters) -> Counters:
        return Counters(self.commits - before.commits, self.syncs - before.syncs, self.wal - before.wal)


def counters(server: str, database: str) -> Counters:
    """As of the end of the connections that were closed by now: a server process reports late while it lives."""
    with psycopg.connect(server, autocommit=True) as connection:
        found = connection.execute(
            "SELECT d.xact_commit, w.wal_sync, w.wal_bytes::bigint FROM pg_stat_database d, pg_stat_wal w"
            " WHERE d.datname = %s",
            [database],
        ).fetchone()
    return Counters(*found) if found else Counters()
