"""A store in a file: on a disk that this host has for itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from argus_celery.doctor.findings import Check, Finding, Level

NETWORK = ("nfs", "cifs", "smb", "9p", "ceph", "afs", "lustre", "gluster", "beegfs", "gfs2", "ocfs2", "fuse.")
"""How the names of file systems begin that several hosts share, or that keep SQLite's locks to themselves."""


def disk(argus: Any) -> Iterator[Finding]:
    store = argus.runtime.store
    if store.dialect_name != "sqlite":
        return
    path = Path(store.url.database).absolute()
    kind = file_system_of(path, mounted())
    if kind is None:
        yield Finding(Level.UNKNOWN, DISK.name, f"which file system {path} is on cannot be told on this system")
    elif kind.startswith(NETWORK):
        yield Finding(
            Level.ERROR,
            DISK.name,
            f"the store {path} is on {kind}, where SQLite's locks and its log cannot be trusted: it may be corrupted",
            "put it on a local disk, or use a server: argus_store_url = 'postgresql+psycopg://…'",
        )
    else:
        yield DISK.ok(f"the store's file is on {kind}, which is local")


def mounted() -> str:
    """The lines of /proc/mounts; empty elsewhere than on Linux."""
    return Path("/proc/mounts").read_text() if sys.platform == "linux" else ""


def file_system_of(path: Path, mounts: str) -> str | None:
    """The type of the file system that holds this absolute path, by the lines of /proc/mounts."""
    found = ("", None)
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        if path.is_relative_to(point) and len(point) >= len(found[0]):
            found = (point, kind)  # type: ignore[assignment]
    return found[1]


DISK = Check("store's disk", disk, needs_store=False)
CHECKS = (DISK,)
