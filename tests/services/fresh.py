"""A clean place on a server that others may use too: made for one test, gone after it."""

from __future__ import annotations

import contextlib
import subprocess
import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit

from argus_celery.store.fresh import fresh_database

__all__ = ["fresh_database", "fresh_redis", "fresh_vhost"]


@contextlib.contextmanager
def fresh_redis(server_url: str) -> Iterator[str]:
    """An empty numbered database on a Redis server, taken by a marker so that no two runs share it."""
    import redis

    for number in range(1, 16):
        client = redis.Redis.from_url(_with_path(server_url, str(number)))
        if client.dbsize() == 0 and client.set("argus-test-owner", uuid.uuid4().hex, nx=True):
            break
        client.close()
    else:
        raise RuntimeError(f"no empty database among 1-15 on {server_url}; drop those that old test runs left")
    try:
        yield _with_path(server_url, str(number))
    finally:
        client.flushdb()
        client.close()


@contextlib.contextmanager
def fresh_vhost(server_url: str, control: list[str] | None = None) -> Iterator[str]:
    """A virtual host of its own on RabbitMQ; ``control`` is the rabbitmqctl command that reaches the server."""
    call = control or ["rabbitmqctl", "-q"]
    name = f"argus-test-{uuid.uuid4().hex[:12]}"
    user = urlsplit(server_url).username or "guest"
    _run(*call, "add_vhost", name)
    try:
        _run(*call, "set_permissions", "-p", name, user, ".*", ".*", ".*")
        yield _with_path(server_url, name)
    finally:
        _run(*call, "delete_vhost", name)


def _run(*call: str) -> None:
    subprocess.run(call, check=True, capture_output=True, stdin=subprocess.DEVNULL)


def _with_path(url: str, path: str) -> str:
    return urlsplit(url)._replace(path=f"/{path}").geturl()
