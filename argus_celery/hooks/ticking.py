"""The scheduler of a beat process, of whatever class: a durable entry that is due becomes a tick of the store.

Entries of tasks that are not durable are sent as Celery sends them.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from celery import Celery
from celery.beat import ScheduleEntry, SchedulingError
from celery.signals import beat_init

from argus_celery.config import CATCH_UPS, PREFIX
from argus_celery.errors import ArgusError, SettingError, StoreUnavailable
from argus_celery.flow import tick
from argus_celery.hooks.attached import KEY, attached
from argus_celery.hooks.batch import collecting
from argus_celery.hooks.beat import NAME as SWEEP
from argus_celery.hooks.due import Firing, plan
from argus_celery.hooks.durable import is_durable_name
from argus_celery.hooks.instants import milliseconds
from argus_celery.records import NewTask

CATCH_UP = "argus_catch_up"
AGAIN = 1.0
"""Seconds after which what the store could not take is tried again."""

logger = logging.getLogger(__name__)


def listen() -> None:
    """Once for a process, however many apps it has."""
    beat_init.connect(_install, weak=False, dispatch_uid=__name__)


def _install(sender: Any, **_: Any) -> None:
    """Mix into the scheduler that a beat has made; every scheduler sends its entries by ``apply_async``."""
    scheduler = sender.scheduler
    cls = type(scheduler)
    if KEY in scheduler.app.__dict__ and not isinstance(scheduler, Ticking):
        scheduler.app.finalize(auto=True)  # a task that is not made yet does not tell that it is durable
        scheduler.__class__ = type(cls.__name__, (Ticking, cls), {"__module__": cls.__module__})
        scheduler.__dict__.pop("producer", None)
        _remember(scheduler)


def _remember(scheduler: Any) -> None:
    """An entry has last run when it last ticked, whatever became of the file of this beat or its predecessor.

    Entries of a class with a memory of its own, which also knows of more reasons not to be due, are left alone.
    """
    entries = {
        tick.entry_name(entry.name): entry
        for entry in scheduler.schedule.values()
        if type(entry).is_due is ScheduleEntry.is_due and is_durable_name(scheduler.app, entry.task)
    }
    try:
        for name, due in tick.standing(attached(scheduler.app).runtime, list(entries)).items():
            if milliseconds(due) <= Firing.of(entries[name]).now:
                entries[name].last_run_at = due.astimezone(scheduler.app.timezone)
    except ArgusError as error:
        logger.warning(
            "argus: beat goes by its own schedule file, for the store does not say what it has sent: %s", error
        )


@dataclass(frozen=True, slots=True)
class _Held:
    """An entry that could not be sent yet."""

    entry: Any
    producer: Any
    at: float


class _Sent:
    """An entry as it is sent once: with other options, and all else its own."""

    def __init__(self, entry: Any, options: dict[str, Any]) -> None:
        self._entry, self.options = entry, options

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)


class Ticking:
    """Mixed into a scheduler."""

    app: Celery
    _met_broker = False

    @cached_property
    def producer(self) -> Any:
        """Without a connection, for which Celery waits here: a tick needs the store, and the broker when it can."""
        return self.Producer(self.connection, auto_declare=False)  # type: ignore[attr-defined]

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **kwargs: Any) -> Any:
        if not is_durable_name(self.app, entry.task):
            return self._send_ordinary(entry, producer=producer, advance=advance, **kwargs)
        try:
            return self._send(entry, producer)
        finally:
            if advance:  # behind it: some schedulers write at once that the entry has run
                self.reserve(entry)  # type: ignore[attr-defined]

    def _send_ordinary(self, entry: Any, **how: Any) -> Any:
        if not self._met_broker:
            if entry.task == SWEEP and not attached(self.app).publisher.reaches(how["producer"]):
                return None  # workers sweep by themselves; what is durable does not wait for this one
            self._ensure_connected()  # type: ignore[attr-defined]
            self._met_broker = True
        return super().apply_async(entry, **how)  # type: ignore[misc]

    def tick(self, *args: Any, **kwargs: Any) -> Any:
        """What was held back goes first, and is looked at again in time."""
        for held in [one for one in self._held.values() if one.at <= time.monotonic()]:
            del self._held[held.entry.name]
            self._send_held(held)
        wait = super().tick(*args, **kwargs)  # type: ignore[misc]
        return min([wait, *(max(0.01, one.at - time.monotonic()) for one in self._held.values())])

    @property
    def _held(self) -> dict[str, _Held]:
        held: dict[str, _Held] = self.__dict__.setdefault("_argus_held", {})
        return held

    def _send_held(self, held: _Held) -> None:
        try:
            self._send(held.entry, held.producer)
        except Exception:
            logger.exception("argus: beat's entry %s, which was held back, could not be sent", held.entry.name)

    def _send(self, entry: Any, producer: Any) -> Any:
        try:
            return self._tick(entry, producer)
        except StoreUnavailable as error:
            logger.warning("argus: beat's entry %s is due and is sent when the store is back: %s", entry.name, error)
            self._hold(entry, producer, AGAIN)
        except SchedulingError as error:
            if not isinstance(error.__context__, StoreUnavailable):
                raise
            self._hold(entry, producer, AGAIN)
        except ArgusError as error:
            raise SchedulingError(f"Couldn't apply scheduled task {entry.name}: {error}") from error
        return None

    def _hold(self, entry: Any, producer: Any, seconds: float) -> None:
        self._held[entry.name] = _Held(entry, producer, time.monotonic() + seconds)

    def _tick(self, entry: Any, producer: Any) -> Any:
        """Look and write, until no other beat has come in between."""
        rt = attached(self.app).runtime
        name, options = tick.entry_name(entry.name), _options(self.app, entry)
        catch_up = _catch_up(rt.settings.catch_up, options.pop(CATCH_UP, None), entry)
        while True:
            ticked = tick.look(rt, name)
            planned = plan(Firing.of(entry), ticked, catch_up)
            if planned.later is not None:
                self._hold(entry, producer, planned.later / 1000)
            if planned.upto is None:
                return None
            if len(planned.due) == tick.MOST:
                logger.warning("argus: beat's entry %s has missed more than the newest %d", entry.name, tick.MOST)
            tasks, result = self._tasks(name, planned.due, _Sent(entry, options), producer)
            if tick.tick(rt, name, ticked.due_at, planned.upto, tasks) is not None:
                return result

    def _tasks(self, name: str, due: tuple[int, ...], entry: Any, producer: Any) -> tuple[list[NewTask], Any]:
        """What Celery makes of the entry for each instant, and what it returns for the newest."""
        tasks: list[NewTask] = []
        result = None
        for instant in due:
            with collecting() as made:
                result = super().apply_async(entry, producer=producer, advance=False)  # type: ignore[misc]
            tasks += _keyed(made, entry.task, tick.key_of(name, instant))
        return tasks, result


def _keyed(made: list[NewTask], name: str, key: str) -> list[NewTask]:
    """The entry's own task has the key of its instant, unless it was given one."""
    mine = next((one for one in made if one.name == name), None)
    return [replace(one, key=key) if one is mine and one.key is None else one for one in made]


def _options(app: Celery, entry: Any) -> dict[str, Any]:
    """The entry's options. Those of Argus may be headers too: django-celery-beat has a place for no others."""
    configured = (app.conf.beat_schedule or {}).get(entry.name) or {}
    options = {name: value for name, value in (configured.get("options") or {}).items() if name.startswith(PREFIX)}
    options.update(entry.options or {})
    headers = dict(options.get("headers") or {})
    options.update({name: headers.pop(name) for name in list(headers) if name.startswith(PREFIX)})
    return {**options, "headers": headers}


def _catch_up(default: str, given: Any, entry: Any) -> str:
    if given not in (None, *CATCH_UPS):
        raise SettingError(f"{CATCH_UP} of the beat entry {entry.name!r} must be one of {CATCH_UPS}, not {given!r}")
    return default if given is None else str(given)
