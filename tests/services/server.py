"""One server process on a free loopback port, in a folder that goes when it is closed."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import psutil

from tests.services import guard

MEMORY, ROOM = Path("/dev/shm"), 4 * 2**30
"""A file system in memory, and the bytes that are to be free there."""


class ServiceMissing(Exception):
    """No program for the service is on this machine; the text says what to set or install."""


class Server:
    """A service as a child process. Subclasses say the command, how to stop it and when it answers."""

    name = "server"
    stop_signal: int = signal.SIGTERM
    start_seconds = 60.0
    in_memory = False
    """Is its folder in memory, where there is room? For who waits for the disk at each table that is made."""

    def __init__(self, port: int | None = None) -> None:
        self.port = port or free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"argus-{self.name}-", dir=_memory() if self.in_memory else None))
        self.process: subprocess.Popen[bytes] | None = None
        guard.watch_folder(self.folder)

    # What a service says of itself

    @property
    def url(self) -> str:
        raise NotImplementedError

    def command(self) -> Sequence[str | Path]:
        raise NotImplementedError

    def prepare(self) -> None:
        """Make the data folder; called before each start."""

    def answers(self) -> bool:
        """Does the running process serve requests now?"""
        raise NotImplementedError

    def popen_options(self) -> dict[str, Any]:
        return {}

    # What one does with it

    def start(self) -> Self:
        """Start it and return when it answers. No-op while it runs."""
        if self.running:
            return self
        self.prepare()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(part) for part in self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.folder,
                **self.popen_options(),
            )
        guard.watch_process(self.process.pid)
        self._wait_until_up()
        return self

    def stop(self, signum: int | None = None) -> None:
        """Ask it to end (``signum`` instead of its usual signal) and wait; kill what does not end."""
        if self.process is None:
            return
        family = self._family()
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signum or self.stop_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        self._end(family)

    def kill(self) -> None:
        """SIGKILL to it and everything it started, as if the machine had died."""
        if self.process is not None:
            self._end(self._family())

    def restart(self, signum: int | None = None) -> None:
        self.stop(signum)
        self.start()

    def pause(self) -> None:
        """SIGSTOP to the whole family: it keeps its connections and answers nothing."""
        for process in self._family():
            process.suspend()

    def resume(self) -> None:
        for process in self._family():
            process.resume()

    def close(self) -> None:
        """Kill it and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def _wait_until_up(self) -> None:
        assert self.process is not None
        if wait_until(lambda: self.process.poll() is not None or self.answers(), self.start_seconds) and self.running:
            return
        code, tail = self.process.poll(), self.log.read_text(errors="replace")[-3000:]
        self.kill()
        raise RuntimeError(f"{self.name} did not come up on port {self.port} (exit {code}):\n{tail}")

    def _family(self) -> list[psutil.Process]:
        """The process and its descendants: some servers' children leave the process group."""
        try:
            parent = psutil.Process(self.process.pid if self.process else -1)
            return [*parent.children(recursive=True), parent]
        except (psutil.NoSuchProcess, ValueError):
            return []

    def _end(self, family: list[psutil.Process]) -> None:
        assert self.process is not None
        for process in reversed(family):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        wait_until(lambda: not any(map(_alive, family)), 10)
        self.process = None


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def free_port() -> int:
    """Below those that a system gives to outgoing connections, one of which could take it before the server does."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def port_answers(port: int, host: str = "127.0.0.1") -> bool:
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


def wait_until(fact: Callable[[], bool], seconds: float) -> bool:
    """Poll for a fact; False when it did not come in time."""
    end = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def find_program(name: str, *folders: str) -> Path | None:
    """The program on PATH, else in the folders (globs, the newest version first)."""
    found = shutil.which(name)
    candidates = [Path(found)] if found else []
    for pattern in folders:
        candidates += sorted(Path("/").glob(f"{pattern.lstrip('/')}/{name}"), reverse=True)
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


def _memory() -> Path | None:
    has_room = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ROOM
    return MEMORY if has_room else None
