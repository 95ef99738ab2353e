"""``celery worker`` processes: started, frozen, killed with all their children, stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

ROOT = Path(__file__).parents[1]


class Worker:
    """One worker with two prefork children, in a process group of its own."""

    def __init__(self, app: str, name: str, folder: Path) -> None:
        self.name = name
        self.log = folder / f"{app}-{name}.log"
        command = [sys.executable, "-m", "celery", "-A", app, "worker"]
        command += ["-n", f"{name}@%h", "-c", "2", "-l", "INFO"]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                # A killed process leaves its temporary files: here they go with the folder.
                env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(self) -> None:
        wait_for(self._ready, 60, f"worker {self.name} to be ready")

    def _ready(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"worker {self.name} ended at its start:\n{self.log.read_text()[-3000:]}")
        return " ready." in self.log.read_text()

    def freeze(self) -> None:
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to the worker and all its children."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def ask_to_end(self) -> None:
        self.process.terminate()

    def stop(self) -> None:
        """Ask it to end; insist after ten seconds."""
        self.ask_to_end()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        self.kill()


def wait_for(fact: Callable[[], T], seconds: float, what: str) -> T:
    """Ask until the answer is true."""
    ends = time.monotonic() + seconds
    while not (answer := fact()):
        if time.monotonic() > ends:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(0.05)
    return answer


def drain(
    app: str,
    folder: Path,
    kills: Iterable[tuple[Callable[[], bool], str]],
    is_done: Callable[[], bool],
    tell: Callable[[str], object],
) -> None:
    """Workers of this app, one after another, until all is done: each is killed as soon as its fact is there."""
    worker = _started(app, 1, folder)
    try:
        for number, (fact, what) in enumerate(kills, 1):
            wait_for(partial(_either, fact, is_done), 60, what)
            worker.kill()
            tell(f"{what}: worker {number} is killed, another starts")
            worker = _started(app, number + 1, folder)
        wait_for(is_done, 120, "all to be done")
    finally:
        worker.stop()


def _either(fact: Callable[[], bool], is_done: Callable[[], bool]) -> bool:
    return fact() or is_done()


def _started(app: str, number: int, folder: Path) -> Worker:
    worker = Worker(app, f"w{number}", folder)
    worker.wait_ready()
    return worker
