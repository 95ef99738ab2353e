"""The app under test: the same for the producer (the test) and the worker and beat processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from celery import Celery, signals

from tests.faults import bodies
from tests.faults.ledger import Ledger
from tests.faults.setup import Setup


def make_app(
    setup: Setup, *, producer: bool = False, register: Callable[[Celery, Setup], None] = bodies.register
) -> Celery:
    """Argus on this setup's broker and store; with ``setup.stock`` Celery as it comes."""
    app = Celery("faults", broker=setup.broker, set_as_current=not producer)
    app.conf.update(
        task_acks_late=setup.ack == "late",
        worker_prefetch_multiplier=4,
        broker_connection_retry_on_startup=True,
        broker_transport_options=dict(setup.broker_options),
        result_backend=f"file://{setup.results}" if setup.stock else "argus://",
        **setup.conf,
    )
    if not setup.stock:
        from argus_celery import Argus

        Argus(app, store=setup.store, **setup.settings)
    register(app, setup)
    return app


def watch(app: Celery, setup: Setup) -> None:
    """Note in the ledger what this process's signals say."""
    ledger = Ledger(setup.ledger)

    @signals.worker_ready.connect(weak=False)
    def ready(sender: Any, **_: Any) -> None:
        ledger.note("ready", str(sender.hostname).split("@")[0], detail=str(os.getppid()))

    @signals.task_failure.connect(weak=False)
    def failed(sender: Any, task_id: str, exception: Any, **_: Any) -> None:
        ledger.note("failure", sender.name, task_id, detail=type(exception).__name__)

    @signals.task_success.connect(weak=False)
    def succeeded(sender: Any, **_: Any) -> None:
        ledger.note("success", sender.name, sender.request.id)

    if not setup.stock:
        _watch_argus(app, setup, ledger)


def _watch_argus(app: Celery, setup: Setup, ledger: Ledger) -> None:
    from argus_celery import signals as argus

    def noted(event: str) -> Any:
        def receive(task_id: str, token: int, **more: Any) -> None:
            ledger.note(event, event, task_id, token, detail=str(more.get("reason", "")))

        return receive

    argus.task_dead.connect(noted("dead"), weak=False)
    argus.delivery_refused.connect(noted("refused"), weak=False)
    argus.lease_lost.connect(noted("lost"), weak=False)
    argus.lease_lapsed.connect(noted("lapsed"), weak=False)
    argus.task_dispatched.connect(noted("dispatched"), weak=False)
    argus.lease_claimed.connect(noted("claimed"), weak=False)
    if setup.touch_store:
        touch(app)
    if setup.dies_recording:
        argus.task_enqueued.connect(_dying(setup.dies_recording, ledger), weak=False)


def _dying(body: str, ledger: Ledger) -> Any:
    """``kill -9`` at the moment between the commit, which the signal reports, and the publish, which follows it."""

    def die(task_id: str, name: str, **_: Any) -> None:
        if name == body:
            ledger.note("killed", name, task_id)
            os.kill(os.getpid(), signal.SIGKILL)

    return die


def touch(app: Celery) -> None:
    """Use the store in the main process, so that its connections exist when the pool forks."""
    from argus_celery import Argus
    from argus_celery.flow import restore

    @signals.worker_init.connect(weak=False)
    def use(**_: Any) -> None:
        argus = Argus.of(app)
        assert argus is not None
        restore.probe(argus.runtime)
