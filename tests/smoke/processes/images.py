"""What an image's name stands for: a server of ``tests.services``, or a Celery worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.services import Server
from tests.services.session import made_or_skipped

SERVICES = ("redis", "rabbitmq", "postgres")


@dataclass(frozen=True)
class Image:
    id: str


def image(name: str) -> Image:
    return Image(name)


def server(name: str, command: Sequence[str], environment: Mapping[str, str], binds: Mapping[str, Path]) -> Server:
    """The process behind a container of this image, not started yet. Skips where its program is missing."""
    for service in SERVICES:
        if name.startswith(service):
            return made_or_skipped(service)
    return Worker(command, environment, binds)


class Worker(Server):
    """The container's command in this very environment. It answers at once; who needs more reads its log."""

    name = "worker"

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], binds: Mapping[str, Path]) -> None:
        super().__init__()
        self.binds = binds
        self.given = command
        self.own = {name: self._here(value) for name, value in environment.items()}

    def command(self) -> Sequence[str | Path]:
        program, *arguments = self.given
        return [sys.executable, "-m", program, *arguments]

    def popen_options(self) -> dict[str, Any]:
        return {"env": self.environment}

    @property
    def environment(self) -> dict[str, str]:
        """Little of ours: a container would not have it either."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        return {**kept, "HOME": str(self.folder), **self.own}

    @property
    def workdir(self) -> Path:
        return next(iter(self.binds.values()), self.folder)

    def answers(self) -> bool:
        return True

    def _here(self, value: str) -> str:
        return next((str(folder) for bind, folder in self.binds.items() if value == bind), value)
