"""An app that is for the time of a test on a store of the test's own, and never near its real servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from celery import Celery
from kombu import pools

from argus_celery.app import Argus
from argus_celery.config import PREFIX
from argus_celery.errors import HookError
from argus_celery.testing.clock import Clock, ClockedStore

HERE = {
    "broker_read_url": None,
    "broker_write_url": None,
    "result_backend": "argus://",
    "task_always_eager": False,
    "task_store_eager_result": False,
    "broker_connection_retry_on_startup": True,
    "worker_enable_remote_control": False,
    "worker_send_task_events": False,
    "worker_hijack_root_logger": False,
}
QUICK = {"argus_sweep_interval": 0.5}
_MADE = ("settings", "runtime", "publisher", "receipts", "watch", "results")


@contextmanager
def moved(app: Celery, store_url: str, clock: Clock, **settings: Any) -> Iterator[Argus]:
    """``argus://`` as broker and result backend, on this store, which is empty or was made for this app.

    ``settings`` are of Argus, without their prefix. All else stays as the app has it.
    """
    argus = Argus.of(app)
    if argus is None:
        raise HookError(f"{app!r} has no Argus: call Argus(app) before it is tested")
    own = {"argus_store_url": store_url, **QUICK, **{PREFIX + name: value for name, value in settings.items()}}
    changed = {**HERE, "broker_url": f"argus+{store_url}", **own}
    app.conf.get("broker_url")  # reads the configuration, if that was not done yet
    before = dict(app.conf.changes)
    given = dict(argus._given)
    try:
        argus._given.update(own)
        app.conf.update(changed)
        _forget(app, argus)
        _put_clock(argus, clock)
        yield argus
    finally:
        argus.runtime.store.dispose()
        argus._given.clear()
        argus._given.update(given)
        app.conf.changes.clear()
        app.conf.changes.update(before)
        _forget(app, argus)


def _forget(app: Celery, argus: Argus) -> None:
    """What was made by other settings is made anew."""
    for name in _MADE:
        argus.__dict__.pop(name, None)
    app._backend_cache = None
    app._local.__dict__.pop("backend", None)
    app._after_fork()  # the pools of connections
    pools.reset()


def _put_clock(argus: Argus, clock: Clock) -> None:
    made = argus.runtime.store
    store = ClockedStore(made.url, app_name=made.app_name, on_connect=made._on_connect, clock=clock)
    argus.__dict__["runtime"] = replace(argus.runtime, store=store)
