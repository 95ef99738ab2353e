"""Which brokers an SQLite store may stand beside."""

from __future__ import annotations

import socket

import pytest
from celery import Celery

from argus_celery import Argus
from argus_celery.errors import SettingError
from argus_celery.hooks.locality import check_locality

FILE = "sqlite:///shop.db"


@pytest.mark.parametrize(
    "broker",
    [
        None,
        "argus://",
        "argus://shop.db",
        "memory://",
        "filesystem://",
        "sqla+sqlite:///broker.db",
        "redis://",
        "redis://localhost:6379/1",
        "redis+socket:///run/redis.sock",
        "amqp://guest:guest@127.0.0.1:5672//",
        "amqp://guest@[::1]//",
        f"redis://{socket.gethostname()}/0",
        "redis://localhost;redis://127.0.0.2",
        "localhost:5672",
    ],
)
def test_a_broker_on_this_host_is_fine(broker: str | None) -> None:
    check_locality(FILE, broker)


@pytest.mark.parametrize(
    "broker",
    [
        "redis://redis:6379/0",
        "amqp://guest@10.0.0.5//",
        "redis://localhost;redis://other",
        ["redis://localhost", "redis://other"],
        "argus+postgresql+psycopg://db/shop",
        "broker.example:5672",
    ],
)
def test_a_broker_on_another_host_is_refused_with_the_remedy(broker: object) -> None:
    with pytest.raises(SettingError, match=r"another host .*Name a server"):
        check_locality(FILE, broker)


def test_a_server_store_may_have_any_broker() -> None:
    check_locality("postgresql+psycopg://db/shop", "redis://other")


def test_an_app_is_told_before_anything_is_written() -> None:
    argus = Argus(Celery("shop", broker="redis://other", set_as_current=False), store=FILE)
    with pytest.raises(SettingError, match="another host"):
        argus.project("import")
