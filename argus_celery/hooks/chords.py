"""Chords are counted in the store: a result backend's chord methods, replaced on each backend that the app makes.

A chord that the store does not know (begun before Argus was installed, or by a producer without it) is left to the
backend's own counting.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from celery import Celery, states
from celery._state import get_current_task
from celery.backends.base import _create_fake_task_request, _result_errbacks
from celery.utils.functional import maybe_list

from argus_celery.context import joined
from argus_celery.errors import StoreUnavailable
from argus_celery.flow import chords, steer
from argus_celery.flow.outage import wait_out
from argus_celery.hooks.attached import attached
from argus_celery.hooks.errands import errands
from argus_celery.hooks.fence import split_errbacks, with_errbacks
from argus_celery.hooks.outbox import execution_here, outbox_here
from argus_celery.hooks.parts import new_chord, part_of
from argus_celery.hooks.unstarted import fail_unstarted
from argus_celery.records import PartCount

put_off: ContextVar[list[Any] | None] = ContextVar("argus_put_off", default=None)
"""While this is a list, errbacks that are called in this process are put there: whoever records the end calls them."""


def count_in_store(app: Celery, backend: Any) -> None:
    """Of a backend that the app has made."""
    counting = Counting(app, backend)
    for name in REPLACED:
        setattr(backend, name, getattr(counting, name))


REPLACED = (
    "ensure_chords_allowed",
    "apply_chord",
    "set_chord_size",
    "add_to_chord",
    "on_chord_part_return",
    "_fail_chain",
    "_call_task_errbacks",
    "_handle_group_chord_error",
)

is_repeated: ContextVar[bool] = ContextVar("argus_repeated", default=False)
"""Is what is done here done again, as a whole, if it meets the store away?"""


def _count_soon(count: Callable[[], None]) -> None:
    """Outside a task, as in a worker's main process, nobody may wait for the store; the worker's loop does."""
    try:
        count()
    except StoreUnavailable:
        errands.soon(count)


class Counting:
    """The methods that stand in for a backend's own."""

    def __init__(self, app: Celery, backend: Any) -> None:
        self.app, self.backend = app, backend
        self.their_size, self.their_add = backend.set_chord_size, backend.add_to_chord
        self.their_return, self.their_errbacks = backend.on_chord_part_return, backend._call_task_errbacks

    def ensure_chords_allowed(self) -> None:
        """Also where there is no result backend, or one that cannot count."""

    # --- the header is sent ----------------------------------------------------------------------------------------

    def apply_chord(self, header_result_args: Any, body: Any, **_: Any) -> None:
        """Before the header is sent: with the completion that leads to it, or at once."""
        chord_id, results = header_result_args
        chord = new_chord(self.app, chord_id, results, body, self._project_id())
        outbox = outbox_here()
        if outbox is not None and outbox.is_collecting:
            outbox.chords.append(chord)
        else:
            # A run that is repeated after a loss makes the same chord, which stands.
            chords.begin(self._rt, chord, anew=execution_here() is None)

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        outbox = outbox_here()
        mine = [chord for chord in outbox.chords if chord.id == group_id] if outbox is not None else []
        if outbox is not None and mine:
            outbox.chords[outbox.chords.index(mine[0])] = replace(mine[0], size=chord_size)
            return
        answer = chords.resize(self._rt, group_id, chord_size)
        if answer is PartCount.UNKNOWN:
            self.their_size(group_id, chord_size)
        elif answer is PartCount.READY:
            attached(self.app).fire([group_id])

    def add_to_chord(self, group_id: str, result: Any) -> None:
        """A durable run adds a part as it sends the task, once however often it is repeated, or else as it ends."""
        run = execution_here()
        if run is not None and chords.is_known(self._rt, group_id):
            run.added[result.id] = group_id
        elif not chords.add(self._rt, group_id):
            self.their_add(group_id, result)

    def _project_id(self) -> int | None:
        """That of the call: of the block it stands in, else of the run."""
        name, run = joined.get(), execution_here()
        if name is not None:
            return steer.open_project(self._rt, name, anew=True)
        return None if run is None else run.claim.project_id

    @property
    def _rt(self) -> Any:
        return attached(self.app).runtime

    # --- its parts come back ---------------------------------------------------------------------------------------

    def on_chord_part_return(self, request: Any, state: str, result: Any, **more: Any) -> None:
        """Of tasks whose completion does not count it: ordinary ones, and those that end without a run."""
        part = part_of(self.app, request, state, result)
        if part is None:
            return

        def count() -> None:
            answer = chords.part_returned(self._rt, part)
            if answer is PartCount.UNKNOWN:
                self.their_return(request, state, result, **more)
            elif answer is PartCount.READY:
                attached(self.app).fire([part.chord_id])

        if is_repeated.get():
            count()
        elif get_current_task() is not None:
            wait_out(count)
        else:
            _count_soon(count)

    # --- it fails --------------------------------------------------------------------------------------------------

    def _fail_chain(
        self,
        chain: Any,
        exc: BaseException,
        traceback: Any = None,
        store_result: bool = True,
        state: str = states.FAILURE,
    ) -> None:
        """As Celery's, which would ask the result backend whether a part was told before; here that does no harm."""
        if isinstance(chain, (list, tuple)):
            fail_unstarted(self.backend, chain, exc, traceback, store_result, state)

    def _call_task_errbacks(self, request: Any, exc: BaseException, traceback: Any) -> None:
        later = put_off.get()
        if later is None:
            self.their_errbacks(request, exc, traceback)
            return
        here, sent = split_errbacks(self.backend, list(request.errbacks or ()))
        if here:
            later.append(lambda: self.their_errbacks(with_errbacks(request, here), exc, traceback))
        if sent:
            self.their_errbacks(with_errbacks(request, sent), exc, traceback)

    def _handle_group_chord_error(self, group_callback: Any, backend: Any, exc: BaseException | None = None) -> None:
        """As Celery's, but nothing is revoked: what never came may still come, when what failed is done again."""
        error = getattr(exc, "__cause__", None) or exc
        assert error is not None
        shared = maybe_list(group_callback.options.get("link_error")) or []
        for task in group_callback.tasks:
            task_id, own = _result_errbacks(task, self.app)
            errbacks = [one for number, one in enumerate([*own, *shared]) if one not in [*own, *shared][:number]]
            backend._call_task_errbacks(_create_fake_task_request(task_id, errbacks), error, None)
        backend._fail_chain(list(group_callback.tasks), error)
        if group_callback.id:
            backend.mark_as_failure(group_callback.id, error)
