"""``docker.from_env()`` for processes: networks that are names, volumes that are folders, images that are recipes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docker.errors import NotFound

from tests.services import guard
from tests.smoke.processes.container import ProcessContainer, unpack
from tests.smoke.processes.images import Image, image


class Network:
    def __init__(self, name: str) -> None:
        self.name = self.id = name
        self.attrs: dict[str, Any] = {"Labels": {}}

    def remove(self) -> None:
        """Nothing was made."""


class Volume:
    def __init__(self, name: str) -> None:
        self.name = self.id = name
        self.folder = Path(tempfile.mkdtemp(prefix="argus-volume-"))
        self.attrs: dict[str, Any] = {"Labels": {}}
        guard.watch_folder(self.folder)

    def put_archive(self, path: str, data: Any) -> bool:
        return unpack(self.folder, data)

    def remove(self, force: bool = False) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class Named:
    """``client.networks`` and ``client.volumes``."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self.make = make
        self.made: dict[str, Any] = {}

    def create(self, name: str, **_: Any) -> Any:
        self.made[name] = self.make(name)
        return self.made[name]

    def get(self, name: str) -> Any:
        if name not in self.made:
            raise NotFound(name)
        return self.made[name]


class Images:
    """Nothing is pulled or built: a name is enough to know the recipe."""

    def pull(self, repository: str, **_: Any) -> Image:
        return image(repository)

    def get(self, name: str) -> Image:
        return image(name)

    def build(self, path: str, tag: str | None = None, **_: Any) -> tuple[Image, list[str]]:
        return image(tag or path), []


class Containers:
    def __init__(self, volumes: Named) -> None:
        self.volumes = volumes
        self.made: dict[str, ProcessContainer] = {}

    def run(self, image: str, **options: Any) -> ProcessContainer:
        binds = {place["bind"]: self.volumes.get(name).folder for name, place in (options.pop("volumes", {})).items()}
        container = ProcessContainer(image, binds, **options)
        self.made[container.name] = container
        container.start()
        return container

    def create(self, image: str, volumes: dict[str, dict[str, str]], **_: Any) -> VolumeFiller:
        """pytest-docker-tools creates a container, never started, to fill a volume through it."""
        (name,) = volumes
        return VolumeFiller(self.volumes.get(name))

    def get(self, name: str) -> ProcessContainer:
        if name not in self.made:
            raise NotFound(name)
        return self.made[name]

    def list(self, **_: Any) -> list[ProcessContainer]:
        return list(self.made.values())


class VolumeFiller:
    def __init__(self, volume: Volume) -> None:
        self.put_archive = volume.put_archive

    def remove(self, force: bool = False) -> None:
        """Nothing was made."""


class ProcessClient:
    def __init__(self) -> None:
        self.networks = Named(Network)
        self.volumes = Named(Volume)
        self.images = Images()
        self.containers = Containers(self.volumes)

    def close(self) -> None:
        for container in self.containers.list():
            container.remove(force=True)
