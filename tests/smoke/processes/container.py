"""One container that is a process: the methods and ``attrs`` that pytest-docker-tools and pytest-celery read."""

from __future__ import annotations

import io
import os
import shlex
import signal
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.services.server import port_answers
from tests.smoke.processes.images import Worker, server


class ProcessContainer:
    def __init__(
        self,
        image: str,
        binds: Mapping[str, Path],
        *,
        name: str | None = None,
        command: list[str] | None = None,
        environment: Mapping[str, str] | None = None,
        ports: Mapping[str, Any] | None = None,
        network: str = "",
        labels: Mapping[str, str] | None = None,
        **_: Any,
    ) -> None:
        self.id = uuid.uuid4().hex
        self.name = name or f"process-{self.id[:12]}"
        self.image, self.labels, self.network = image, dict(labels or {}), network
        self.container_ports = list(ports or {})
        command = [part.replace("%h", self.short_id) for part in command or []]
        self.process = server(image, command, environment or {}, binds)
        self.variables = dict(environment or {})

    @property
    def short_id(self) -> str:
        return self.id[:12]

    # --- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.process.start()

    def stop(self, timeout: int = 10) -> None:
        self.process.stop()

    def restart(self, timeout: int = 10) -> None:
        self.process.restart()

    def kill(self, signal: str | int | None = None) -> None:
        """SIGKILL ends all that runs in a container, so here the whole family; others go to its first process."""
        number = _number(signal)
        if number == _number("SIGKILL"):
            self.process.kill()
        elif self.process.process is not None:
            os.kill(self.process.process.pid, number)

    def remove(self, force: bool = False, **_: Any) -> None:
        self.process.close()

    def wait(self, timeout: int = 10) -> dict[str, int]:
        return {"StatusCode": 0}

    # --- what one sees of it ----------------------------------------------------------------------------------------

    def reload(self) -> None:
        """Everything is looked up when asked for."""

    @property
    def status(self) -> str:
        return "running" if self.process.running else "exited"

    @property
    def attrs(self) -> dict[str, Any]:
        listening = [{"HostIp": "127.0.0.1", "HostPort": str(self.process.port)}] if self.process.running else []
        return {
            # The address and port in one: other processes reach it where this machine does.
            "Config": {
                "Hostname": f"127.0.0.1:{self.process.port}" if self.container_ports else self.short_id,
                "Env": [f"{name}={value}" for name, value in self.variables.items()],
                "Labels": self.labels,
            },
            "NetworkSettings": {
                "Networks": {self.network: {"IPAddress": "127.0.0.1"}},
                "Ports": dict.fromkeys(self.container_ports, listening),
            },
            "HostConfig": {"PortBindings": {}},
            "Mounts": [],
        }

    def logs(self, **_: Any) -> bytes:
        files = [self.process.log, *sorted((self.process.folder / "logs").glob("*.log"))]
        return b"".join(file.read_bytes() for file in files if file.exists())

    # --- from outside -----------------------------------------------------------------------------------------------

    def exec_run(self, cmd: str | list[str], **_: Any) -> tuple[int, bytes]:
        arguments = shlex.split(cmd) if isinstance(cmd, str) else list(cmd)
        if arguments[:2] == ["cat", "/proc/net/tcp"]:
            return 0, self._open_ports()
        if arguments[0] == "python":
            arguments[0] = sys.executable
        worker = self.process if isinstance(self.process, Worker) else None
        place = {"env": worker.environment, "cwd": worker.workdir} if worker else {"cwd": self.process.folder}
        run = subprocess.run(arguments, capture_output=True, check=False, stdin=subprocess.DEVNULL, **place)
        return run.returncode, run.stdout + run.stderr

    def _open_ports(self) -> bytes:
        """As netstat inside a container: the port that it knows itself by, while it listens on the one outside."""
        ports = [int(port.split("/")[0]) for port in self.container_ports if port_answers(self.process.port)]
        return "\n".join(f"0: 00000000:{port:04X} 00000000:0000 0A" for port in ports).encode()

    def put_archive(self, path: str, data: Any) -> bool:
        worker = self.process
        folder = worker.binds.get(path, worker.folder) if isinstance(worker, Worker) else worker.folder
        return unpack(folder, data)

    def get_archive(self, path: str) -> tuple[list[bytes], dict[str, Any]]:
        packed = io.BytesIO()
        with tarfile.open(mode="w", fileobj=packed) as archive:
            archive.add(path, arcname=Path(path).name)
        return [packed.getvalue()], {"name": Path(path).name}


def unpack(folder: Path, data: Any) -> bool:
    packed = io.BytesIO(data) if isinstance(data, bytes) else data
    with tarfile.open(fileobj=packed) as archive:
        archive.extractall(folder, filter="data")
    return True


def _number(name: str | int | None) -> int:
    return name if isinstance(name, int) else int(signal.Signals[name or "SIGKILL"])
