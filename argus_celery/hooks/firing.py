"""Firing a chord: all its parts are in, so its body is recorded, or its errbacks and that it failed; once.

Whoever counted the last part does it, right after that commit; if it dies, whoever sweeps. What it leads to is first
gathered and then recorded by the very transaction that strikes the chord out, so that of two only one records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from celery import group
from celery.backends.base import _create_chord_error_with_cause
from celery.exceptions import ChordError
from kombu.exceptions import OperationalError
from kombu.utils.functional import maybe_list

from argus_celery.errors import ProjectClosed, StoreUnavailable
from argus_celery.flow import chords
from argus_celery.flow.chords import Leading
from argus_celery.hooks.backend import abandoning
from argus_celery.hooks.children import numbered_ids
from argus_celery.hooks.chords import is_repeated, put_off
from argus_celery.hooks.outbox import gathering
from argus_celery.hooks.parts import arranged, body_of, has_failed, value_of
from argus_celery.hooks.unstarted import fail_unstarted
from argus_celery.records import Claim, Message, NewChord, NewTask, OwedChord

logger = logging.getLogger(__name__)


def fire(argus: Any, chord_ids: Iterable[str]) -> int:
    """Fire these; how many were fired here. What cannot be done now is left to the sweep."""
    return sum(_fired(argus, chord_id) for chord_id in sorted(chord_ids))


def fire_owed(argus: Any, limit: int) -> int:
    """Fire what nobody has fired. Raises ``StoreUnavailable``."""
    return fire(argus, chords.owed(argus.runtime, limit))


def _fired(argus: Any, chord_id: str) -> bool:
    try:
        chord = chords.read_owed(argus.runtime, chord_id)
        return chord is not None and _Firing(argus, chord).fire()
    except StoreUnavailable as error:
        logger.warning("argus: chord %s is full and will be fired by the next sweep: %s", chord_id, error)
    except Exception:
        logger.exception("argus: chord %s is full; firing it failed and will be repeated", chord_id)
    return False


@dataclass(frozen=True)
class _Following:
    """What is to be recorded, sent and called once the chord is struck out."""

    tasks: list[NewTask] = field(default_factory=list)
    chords: list[NewChord] = field(default_factory=list)
    plain: list[Message] = field(default_factory=list)
    calls: list[Callable[[], object]] = field(default_factory=list)


class _Firing:
    def __init__(self, argus: Any, chord: OwedChord) -> None:
        self.argus, self.chord, self.app = argus, chord, argus.app
        self.project_id = chord.project_id or argus.default_project_id()

    def fire(self) -> bool:
        before = is_repeated.set(True)
        try:
            following = self._following()
        finally:
            is_repeated.reset(before)
        if not self._settled(following):
            return False
        if following.plain and self.argus.publisher.send_plain(following.plain):
            chords.sent(self.argus.runtime, self.chord.id)
        if not self.chord.recorded:
            for call in following.calls:
                call()
        return True

    def _following(self) -> _Following:
        try:
            values = self._values()
        except ChordError as error:
            return self._failing(error)
        try:
            return self._gathered(lambda: self.app.amqp._retry_publish(body_of(self.app, self.chord).delay, values))
        except OperationalError:
            raise  # the store or a broker is away
        except Exception as error:
            logger.exception("argus: the body of chord %s cannot be sent", self.chord.id)
            return self._failing(_create_chord_error_with_cause(f"Callback error: {error!r}", error))

    def _values(self) -> list[Any]:
        """What the body is given; raises ``ChordError`` for the first part, in order, that failed."""
        try:
            values = {part.task_id: value_of(self.app, part) for part in self.chord.parts}
        except Exception as error:
            raise _create_chord_error_with_cause(f"Join error: {error!r}", error) from error
        failed = next((part for part in self.chord.parts if has_failed(part)), None)
        if failed is not None:
            cause = values[failed.task_id]
            raise _create_chord_error_with_cause(f"Dependency {failed.task_id} raised {cause!r}", cause)
        return arranged(self.chord, values)

    def _failing(self, error: BaseException) -> _Following:
        """The body and what follows it are told, which may be repeated; the errbacks are recorded with the rest."""
        body = body_of(self.app, self.chord)
        calls: list[Callable[[], object]] = []
        putting_off, before = put_off.set(calls), abandoning.set(True)
        try:
            return replace(self._gathered(lambda: self._tell(body, error)), calls=calls)
        finally:
            abandoning.reset(before)
            put_off.reset(putting_off)

    def _tell(self, body: Any, error: BaseException) -> None:
        backend = self.app.backend
        for one in body.tasks if isinstance(body, group) else (body,):
            _leave_to_outer(one)
        try:
            raise error  # Celery stores the traceback that is being handled
        except type(error):
            backend.chord_error_from_stack(body, error)
        if not isinstance(body, group):  # of a group Celery has told each task
            fail_unstarted(backend, [body], error, told_already=body.id)

    def _gathered(self, call: Callable[[], object]) -> _Following:
        # Named otherwise than the body may be: what bears the id of the run is taken for its retry.
        claim = Claim(f"chord {self.chord.id}", 0, "", self.project_id, 0, 0.0)
        # The same ids for all who fire it: a backend is told of them before one of these is the first to record.
        with gathering(self.argus, claim) as outbox, numbered_ids(f"{claim.task_id} {self.chord.turn}"):
            call()
        return _Following(outbox.continuations, outbox.chords, outbox.plain)

    def _settled(self, following: _Following) -> bool:
        rt, leading = self.argus.runtime, Leading(following.tasks, following.chords, sends=bool(following.plain))
        try:
            return chords.settle(rt, self.chord, self.project_id, leading)
        except ProjectClosed:
            # An ordinary header does not keep its project open; the body is not lost for that.
            project_id = self.argus.default_project_id()
            moved = [replace(task, project_id=project_id, project=None, inside=False) for task in following.tasks]
            return chords.settle(rt, self.chord, project_id, replace(leading, tasks=moved))


def _leave_to_outer(body: Any) -> None:
    """An errback that is linked to a chord is put by Celery on the bodies of the chords in its header too, as these
    would not fail it. Here they do, and it calls the errback."""
    options = body.get("options") or {}
    outer = options.get("chord")
    if options.get("link_error") and outer:
        shared = list(_errbacks_of(outer))
        options["link_error"] = [one for one in maybe_list(options["link_error"]) if one not in shared]


def _errbacks_of(body: Any) -> Iterator[Any]:
    yield from maybe_list((body.get("options") or {}).get("link_error")) or ()
    if body.get("subtask_type") == "group":
        for task in body["kwargs"]["tasks"]:
            yield from _errbacks_of(task)
