"""The programs of a side: commands that end, with the figures they print, and workers that are stopped or killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness.sides import Side

ROOT = Path(__file__).parent.parent.parent


class Programs:
    """Of one side, in one folder."""

    def __init__(self, side: Side, folder: Path, peer: str | None) -> None:
        self.side, self.folder = side, folder
        self._python = side.python(peer)

    def run(self, *arguments: object, module: str = "") -> dict[str, Any]:
        """Run a command of the side, or of another module, to its end; what it printed as JSON."""
        call = [*self._call(module), *map(str, arguments)]
        done = subprocess.run(call, cwd=ROOT, env=self._environment("-"), capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{self.side.name}: {' '.join(call)}\n{done.stderr[-3000:]}")
        printed = done.stdout.strip().splitlines()
        return dict(json.loads(printed[-1])) if printed and printed[-1].startswith("{") else {}

    def start(self, name: str, *arguments: object, module: str = "") -> subprocess.Popen[bytes]:
        """A worker, or another command, in a process group of its own; what it says is in the folder."""
        with (self.folder / f"{name}.log").open("ab") as log:
            call = [*self._call(module), *map(str, arguments or ("worker", name))]
            environment = self._environment(name)
            return subprocess.Popen(call, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)

    def _call(self, module: str = "") -> list[str]:
        return [self._python, "-m", f"benchmarks.sides.{module or self.side.module}"]

    def _environment(self, name: str) -> dict[str, str]:
        return {**os.environ, **self.side.environment, "BENCH_NAME": name, "PYTHONPATH": str(ROOT)}

    @contextmanager
    def worker(self, name: str = "one") -> Iterator[subprocess.Popen[bytes]]:
        process = self.start(name)
        try:
            yield process
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes], patience: float = 30) -> None:
    """Ask it to end, and kill what does not."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            pass
    kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the whole group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def wait_for(fact: Callable[[], bool], seconds: float, what: str, pause: float = 0.02) -> None:
    if not came(fact, seconds, pause):
        raise SystemExit(f"{what} did not come in {seconds:.0f} s")


def came(fact: Callable[[], bool], seconds: float, pause: float = 0.02) -> bool:
    until = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > until:
            return False
        time.sleep(pause)
    return True
