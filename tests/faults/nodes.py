"""Real celery processes, each the leader of its own session: killing the group is "the machine died"."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tests.faults.ledger import Ledger, wait_for
from tests.faults.setup import Setup
from tests.services import guard

ROOT = Path(__file__).resolve().parents[2]
BOOT = 40.0


class Node:
    """One ``celery worker`` or ``celery beat``. The test may kill, stop and end it; nothing else may end it."""

    program = ("-m", "celery", "-A", "tests.faults.worker")

    def __init__(self, name: str, setup: Setup, folder: Path, arguments: list[str]) -> None:
        self.name = name
        self.may_exit = False
        self.log = folder / f"{name}.log"
        self.ledger = Ledger(setup.ledger)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **setup.environment()}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.program, *arguments],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.launched = time.time()
        guard.watch_process(self.pid)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def wait_ready(self) -> float:
        """Return once it consumes; the wall-clock time at which it said so."""
        return wait_for(self._ready_at, BOOT, f"{self.name} is ready")

    def _ready_at(self) -> float | None:
        alive = self.running  # asked first: a task may kill it as soon as it is ready
        ready = next((line.time for line in self.ledger.lines("ready", self.name) if line.pid == self.pid), None)
        assert alive or ready is not None, f"{self.name} exited {self.process.poll()} while booting:\n{self.tail()}"
        return ready

    def kill(self) -> float:
        """SIGKILL to the whole group: the machine died. Returns when."""
        self.may_exit = True
        at = time.time()
        self._signal_group(signal.SIGKILL)
        self.process.wait()
        return at

    def kill_child(self, pid: int) -> float:
        """SIGKILL to one process of the pool: the OOM killer took it. Returns when."""
        assert psutil.Process(pid).ppid() == self.pid, f"{pid} is no child of {self.name}"
        at = time.time()
        os.kill(pid, signal.SIGKILL)
        return at

    def freeze(self, *, only_parent: bool = False) -> None:
        os.kill(self.pid, signal.SIGSTOP) if only_parent else self._signal_group(signal.SIGSTOP)

    def thaw(self, *, only_parent: bool = False) -> None:
        os.kill(self.pid, signal.SIGCONT) if only_parent else self._signal_group(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM to the main process, as a supervisor does: a warm shutdown."""
        self.may_exit = True
        self.process.send_signal(signal.SIGTERM)

    def wait_exit(self, within: float) -> None:
        wait_for(lambda: not self.running, within, f"{self.name} exits")

    def clean_up(self) -> None:
        if self.running:
            self._signal_group(signal.SIGCONT)
        self._signal_group(signal.SIGKILL)
        self.process.wait()

    def tail(self, characters: int = 6000) -> str:
        return self.log.read_text(errors="replace")[-characters:]

    def _signal_group(self, signum: int) -> None:
        try:
            os.killpg(self.pid, signum)
        except ProcessLookupError:
            pass
