"""Remote control that revokes is recorded in the store first, and then told to the workers as Celery does.

``control.revoke`` and its relatives, and ``celery control`` on the command line, all end in ``Control.broadcast``. A
worker records what it hears too: the producer may have no Argus.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial, wraps
from typing import Any

from celery import Celery
from celery.app.control import Control
from celery.worker import state
from celery.worker.control import Panel
from kombu.exceptions import OperationalError
from kombu.utils.functional import maybe_list

from argus_celery.errors import StoreUnavailable
from argus_celery.flow.revoke import cancelled, revoke
from argus_celery.hooks import renewing, stamps
from argus_celery.hooks.attached import attached
from argus_celery.hooks.errands import errands
from argus_celery.hooks.mixing import mix_in
from argus_celery.hooks.request import DurableRequest

logger = logging.getLogger(__name__)

_ONCE = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}


class Revoking:
    """Mixed into the app's ``Control``."""

    app: Celery
    mailbox: Any

    def broadcast(
        self, command: str, arguments: Any = None, destination: Any = None, connection: Any = None, **options: Any
    ) -> Any:
        theirs = super().broadcast  # type: ignore[misc]
        record = _RECORDED.get(command)
        if record is None:
            return theirs(command, arguments, destination, connection, **options)
        try:
            record(self.app, **{**options, **(arguments or {})})
        except StoreUnavailable:
            self._tell(command, arguments, destination, connection, **options)  # who hears it records it later
            raise
        return self._tell(command, arguments, destination, connection, **options)

    def _tell(self, command: str, arguments: Any, destination: Any, connection: Any, **options: Any) -> Any:
        """A broker that is away is not waited for."""
        try:
            with self.app.connection_or_acquire(connection) as open_one:
                if not open_one.connected:
                    open_one.ensure_connection(max_retries=0, interval_start=0, interval_step=0, timeout=1.0)
                quick: Any = super(Revoking, _quick(self))
                return quick.broadcast(command, arguments, destination, open_one, **options)
        except Exception as error:
            if not isinstance(error, (OperationalError, OSError, *_broker_errors(self.app))):
                raise
            logger.warning("argus: the broker is away, so workers find the %s in the store: %s", command, error)
            return [] if options.get("reply") else None


class ArgusControl(Revoking, Control):
    """The ``Control`` of an app that has none of its own."""


LOOK = "argus_look"


def ring(app: Celery) -> None:
    """Ask all workers to look at once whether what they run is still theirs. One that does not hear it will anyway."""
    control = app.control
    if isinstance(control, Revoking):
        control._tell(LOOK, None, None, None)


def install(app: Celery) -> None:
    """Also on an app whose ``control`` was used already."""
    mix_in(app, "control", Revoking, ArgusControl)


def _quick(control: Any) -> Any:
    """The same control, that tries a broken connection once more and not for ever."""
    twin = copy(control)
    twin.mailbox = copy(control.mailbox)
    acquire = twin.mailbox.producer_or_acquire

    @contextmanager
    def producer_or_acquire(*args: Any, **options: Any) -> Iterator[Any]:
        with acquire(*args, **options) as producer:
            yield _OnceMore(producer)

    twin.mailbox.producer_or_acquire = producer_or_acquire
    return twin


class _OnceMore:
    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def publish(self, *args: Any, **options: Any) -> Any:
        return self._producer.publish(*args, retry_policy=_ONCE, **options)


def _broker_errors(app: Celery) -> tuple[type[BaseException], ...]:
    connection = app.connection_for_write()
    return (*connection.connection_errors, *connection.channel_errors)


# --- what is recorded -------------------------------------------------------------------------------------------------


def _record_ids(app: Celery, task_id: Any = None, **_: Any) -> None:
    revoke(attached(app).runtime, _ids(task_id))


def _ids(task_id: Any) -> list[str]:
    return [one for one in maybe_list(task_id) or () if isinstance(one, str)]


def _record_stamps(app: Celery, headers: Any = None, **_: Any) -> None:
    stamps.record(attached(app).runtime, headers or {})


_RECORDED: dict[str, Callable[..., None]] = {
    "revoke": _record_ids,
    "terminate": _record_ids,
    "revoke_by_stamped_headers": _record_stamps,
}


# --- the worker hears it ----------------------------------------------------------------------------------------------


def listen() -> None:
    """In a worker's main process: its remote commands record too, and the runs it has in hand are told at once."""
    for name, hear in _HEARD.items():
        command = Panel.data[name]
        if not hasattr(command, "argus_hears"):
            Panel.data[name] = _hearing(command, hear)
    Panel.data[LOOK] = _look


def _look(panel: Any, **_: Any) -> None:
    renewing.look(panel.app)


def _hearing(command: Callable[..., Any], hear: Callable[..., None]) -> Callable[..., Any]:
    @wraps(command)
    def hearing(panel: Any, **arguments: Any) -> Any:
        answer = command(panel, **arguments)
        with suppress(LookupError):  # another app's worker in this process
            attached(panel.app)
            errands.soon(partial(hear, panel.app, panel.consumer, **arguments))
        return answer

    hearing.argus_hears = True  # type: ignore[attr-defined]
    return hearing


def _hear_ids(app: Celery, consumer: Any, task_id: Any = None, **_: Any) -> None:
    ids = set(_ids(task_id))
    revoke(attached(app).runtime, sorted(ids))
    _stop(app, consumer.pool, [one for one in requests_of(app) if one.id in ids])


def _hear_stamps(app: Celery, consumer: Any, headers: Any = None, **_: Any) -> None:
    stop_stamped(app, consumer.pool, stamps.record(attached(app).runtime, headers or {}))


_HEARD: dict[str, Callable[..., None]] = {
    "revoke": _hear_ids,
    "terminate": _hear_ids,
    "revoke_by_stamped_headers": _hear_stamps,
}


def stop_stamped(app: Celery, pool: Any, revoked: stamps.Stamps) -> None:
    """Revoke the tasks in hand that bear one of these stamps."""
    bearing = [one for one in requests_of(app) if stamps.bears(one, revoked)]
    if bearing:
        revoke(attached(app).runtime, [one.id for one in bearing])
        _stop(app, pool, bearing)


def requests_of(app: Celery) -> list[DurableRequest]:
    """The durable requests that this worker has fetched, begun or not. The registry changes under other threads."""
    while True:
        try:
            known = list(state.requests.values())
        except RuntimeError:
            continue
        return [one for one in known if isinstance(one, DurableRequest) and one.app is app]


def _stop(app: Celery, pool: Any, requests: list[DurableRequest]) -> None:
    """Those of these whose task the store says is cancelled do not begin, or are told to stop."""
    claims = {one.claimed: one for one in requests if one.claimed is not None}
    for claim in cancelled(attached(app).runtime, claims.keys()) if claims else ():
        claims[claim].stop_revoked(partial(claims[claim].tell, pool))
