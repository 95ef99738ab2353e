"""The result backends that an app makes, one for each thread: each is changed when it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery

Change = Callable[[Celery, Any], None]


def change_each(app: Celery, change: Change) -> None:
    """Also the one that the app has made already."""
    make = app._get_backend

    def make_changed() -> Any:
        backend = make()
        change(app, backend)
        return backend

    app._get_backend = make_changed
    made = app._backend
    if made is not None:
        change(app, made)
