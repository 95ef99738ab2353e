"""One helper process that cleans up after a killed test run: it reads what to end, and acts when its input ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

_pipes: dict[int, IO[bytes]] = {}


def watch_process(pid: int) -> None:
    """End the process group of ``pid`` when this process is gone."""
    _tell(f"process {pid}")


def watch_folder(folder: Path) -> None:
    """Remove the folder when this process is gone."""
    _tell(f"folder {folder}")


def _tell(line: str) -> None:
    pid = os.getpid()
    if pid not in _pipes:
        guard = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, start_new_session=True)
        assert guard.stdin is not None
        _pipes[pid] = guard.stdin
    _pipes[pid].write(f"{line}\n".encode())
    _pipes[pid].flush()


def main() -> None:
    seen = [line.split(maxsplit=1) for line in sys.stdin.read().splitlines()]
    for kind, value in reversed(seen):
        if kind == "process" and _leads_a_group(int(value)):
            os.killpg(int(value), signal.SIGKILL)
    for kind, value in seen:
        if kind == "folder":
            shutil.rmtree(value, ignore_errors=True)


def _leads_a_group(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False


if __name__ == "__main__":
    main()
