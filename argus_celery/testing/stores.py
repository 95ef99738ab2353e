"""The fresh store of a test."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from celery import Celery

from argus_celery.app import Argus
from argus_celery.store import setup
from argus_celery.store.engine import Store
from argus_celery.testing.clock import Clock
from argus_celery.testing.moving import moved
from argus_celery.testing.options import check_settings


@dataclass
class TestStore:
    """An empty database, and the apps that use it for this test."""

    __test__ = False

    url: str
    clock: Clock
    stack: ExitStack
    _used: dict[int, Argus] = field(default_factory=dict)

    def use(self, app: Celery, **settings: Any) -> Argus:
        """Until the test is over the app works on this store and on ``argus://``, whatever its configuration says.

        ``settings`` are those of ``Argus(app, …)``; a second call changes nothing.
        """
        if id(app) not in self._used:
            check_settings(self.url, settings)
            prepare(app, self.url)
            self._used[id(app)] = self.stack.enter_context(moved(app, self.url, self.clock, **settings))
        return self._used[id(app)]

    def __str__(self) -> str:
        return self.url


def prepare(app: Celery, url: str) -> None:
    """Make the tables."""
    store = Store(url, app_name="" if app.main in (None, "__main__") else app.main)
    setup.init(store)
    store.dispose()
