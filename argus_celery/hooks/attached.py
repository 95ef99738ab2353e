"""Which Argus serves a Celery app, for hooks that Celery calls with nothing but the app."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from celery import Celery
from celery.app import base

from argus_celery.config import Settings
from argus_celery.flow.prune import Pruning
from argus_celery.flow.runtime import Runtime
from argus_celery.hooks.publisher import Publisher

KEY = "_argus"


class Attached(Protocol):
    """What the hooks need of an ``Argus``."""

    app: Celery

    @property
    def settings(self) -> Settings: ...
    @property
    def runtime(self) -> Runtime: ...
    @property
    def publisher(self) -> Publisher: ...
    @property
    def results(self) -> Any: ...
    def check(self) -> None: ...
    def fire(self, chord_ids: Iterable[str]) -> int: ...
    def pay_debts(self, limit: int = 100) -> int: ...
    def pruning(self) -> Pruning: ...


def own_task(app: Celery, name: str, **options: Any) -> Any:
    """``app.task`` for the tasks of Argus. In a spawned child Celery would share lazy ones with every app."""
    return app.task(name=name, shared=False, lazy=not base.USING_EXECV, **options)


def attach(app: Celery, argus: Any) -> None:
    app.__dict__[KEY] = argus


def attached(app: Celery) -> Attached:
    """The Argus of this app; ``LookupError`` if there is none."""
    argus: Attached | None = app.__dict__.get(KEY)
    if argus is None:
        raise LookupError(f"Argus is not installed on {app!r}: call Argus(app)")
    return argus
