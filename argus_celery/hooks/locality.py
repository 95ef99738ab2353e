"""An SQLite file serves one host: workers of two hosts would each open a file of their own."""

from __future__ import annotations

import re
import socket
from typing import Any
from urllib.parse import urlsplit

from argus_celery.errors import SettingError

_NO_HOST = ("argus", "memory", "filesystem", "sqla+sqlite")
_HERE = ("", "localhost", "::1", "0.0.0.0")


def check_locality(store_url: str, broker_url: Any) -> None:
    """Raises ``SettingError`` for an SQLite store with a broker on another host."""
    if not store_url.startswith("sqlite"):
        return
    host = next((host for host in _hosts(broker_url) if not _is_here(host)), None)
    if host is not None:
        raise SettingError(
            f"argus_store_url is a file, and the broker is on another host ({host}): not all workers would see it."
            " Name a server, for example postgresql+psycopg://localhost/shop, or keep the broker on this host"
        )


def _hosts(broker_url: Any) -> list[str]:
    """The hosts of a broker URL, of several with ``;`` between them, or of a list."""
    given = broker_url if isinstance(broker_url, (list, tuple)) else str(broker_url or "").split(";")
    urls = [str(url) if "://" in str(url) else f"amqp://{url}" for url in given if url]
    return [urlsplit(url).hostname or "" for url in urls if url.partition("://")[0] not in _NO_HOST]


def _is_here(host: str) -> bool:
    return host in (*_HERE, socket.gethostname().lower()) or re.fullmatch(r"127(\.\d+){3}", host) is not None
