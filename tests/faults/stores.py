"""The stores of the matrix: an empty database for one run, on the shared server or on one that may be stopped."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults import business
from tests.services import MariaServer, PostgresServer, Server
from tests.services.fresh import fresh_database

OWN: dict[str, type[Server]] = {"postgres": PostgresServer, "mariadb": MariaServer}


@dataclass(frozen=True)
class StorePlace:
    url: str
    _server: Server | None = None

    @property
    def server(self) -> Any:
        assert self._server is not None, "this case needs own_store=True"
        return self._server


@contextlib.contextmanager
def open_store(kind: str, folder: Path, *, own: bool) -> Iterator[StorePlace]:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(OWN[kind]()) if own else None
        if kind == "sqlite":
            url = f"sqlite:///{folder / 'store.db'}"
        else:
            url = stack.enter_context(fresh_database(server.url if server else shared_url(kind)))
        business.create(url)
        yield StorePlace(url, server)


def shared_url(kind: str) -> str:
    return os.environ[f"ARGUS_TEST_{kind.upper()}_URL"]
