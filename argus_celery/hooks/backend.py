"""``argus://``: the task row itself as Celery's result backend."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextvars import ContextVar
from typing import Any

from celery import states
from celery.backends.asynchronous import AsyncBackendMixin
from celery.backends.base import Backend, DisabledBackend
from celery.exceptions import ImproperlyConfigured, TimeoutError
from celery.result import result_from_tuple
from kombu.exceptions import EncodeError
from kombu.utils.encoding import bytes_to_str, ensure_bytes

from argus_celery.errors import BadEvent, PayloadTooLarge, StoreUnavailable
from argus_celery.flow.checks import check_name, check_size
from argus_celery.flow.forget import forget, forget_old
from argus_celery.flow.keep import keep
from argus_celery.flow.say import say
from argus_celery.hooks import meta
from argus_celery.hooks.attached import attached
from argus_celery.hooks.consumer import NoBuffer, ResultConsumer
from argus_celery.hooks.outbox import run_of
from argus_celery.store import groups, results
from argus_celery.store.results import ResultRow

SHORTEST_PAUSE = 0.005
LONGEST_PAUSE = 0.25


class ResultTooLarge(PayloadTooLarge, EncodeError):
    """An ``EncodeError``, so that Celery fails the task with it as with a result that does not serialise."""


abandoning: ContextVar[bool] = ContextVar("argus_abandoning", default=False)
"""Are the results stored here those of tasks that never come?"""


def is_foreign(backend: Any) -> bool:
    """Is this a result backend that has to be told, beside the store?"""
    return not isinstance(backend, (ArgusBackend, DisabledBackend))


class ArgusBackend(AsyncBackendMixin, Backend):
    """Results of durable tasks are written with their completion, in the same transaction; here they are read.

    What tasks that are not durable return is kept in rows of its own.
    """

    persistent = True
    supports_native_join = True
    supports_failure_expires = True
    supports_result_compression = True

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app, **options)
        try:
            self.argus: Any = attached(app)
        except LookupError as error:
            raise ImproperlyConfigured("result_backend is argus://, which needs Argus(app)") from error
        self._pending_messages = NoBuffer()
        self.result_consumer = ResultConsumer(self, app, self.accept, self._pending_results, self._pending_messages)
        failures = app.conf.get("result_failure_expires")
        self.failure_expires = self.expires if failures is None else self.prepare_expires(failures)

    def __deepcopy__(self, memo: Any) -> ArgusBackend:
        """A result in the options of a signature is copied with it, and stays one of this app, current or not."""
        return self

    # --- writing ---------------------------------------------------------------------------------------------------

    def document(self, result: Any, state: str, traceback: Any, request: Any) -> bytes:
        """What is kept of an outcome in the task row. Raises ``EncodeError``, ``ResultTooLarge``."""
        return self._document(self.encode_result(result, state), state, traceback, request)

    def _document(self, result: Any, state: str, traceback: Any, request: Any) -> bytes:
        label = f"{getattr(request, 'task', None) or 'the task'}[{getattr(request, 'id', None) or ''}]"
        return self._fitting(label, self._get_result_meta(result, state, traceback, request))

    def _fitting(self, label: str, content: Any) -> bytes:
        document = bytes(ensure_bytes(self.encode(content)))
        check_size(self.argus.runtime, f"the result of {label}", document, ResultTooLarge)
        return document

    def payload(self, event: str, value: Any) -> bytes:
        """What an event carries, serialised as results are."""
        try:
            data = bytes(ensure_bytes(self.encode(value)))
        except EncodeError as error:
            raise BadEvent(
                f"the payload of the event {event!r} is not what {self.serializer} can write ({error}):"
                " send plain values, or a reference to the data"
            ) from error
        check_size(self.argus.runtime, f"the payload of the event {event!r}", data)
        return data

    def _store_result(
        self, task_id: str, result: Any, state: str, traceback: Any = None, request: Any = None, **options: Any
    ) -> Any:
        """Of durable tasks the completion has stored the end already; what a run says of itself before is fenced.

        That an id is revoked for which no task has come is a mark, not a result: a durable task may come yet.
        """
        run = run_of(task_id)
        if (run is not None and run.settled) or (state == states.REVOKED and request is None):
            return result
        document = self._document(result, state, traceback, request)
        if run is not None:
            run.said = (state, document)
            say(run.rt, run.claim, document)
        else:
            name = getattr(request, "task", None) or ""
            keep(self.argus.runtime, task_id, name, meta.kept_as(state), document, abandoned=abandoning.get())
        return result

    def exception_safe_to_retry(self, exc: BaseException) -> bool:
        return isinstance(exc, StoreUnavailable)

    # --- reading ---------------------------------------------------------------------------------------------------

    def meta_of(self, task_id: str, row: ResultRow | None) -> dict[str, Any]:
        return meta.meta_of(task_id, row, self.decode_result)

    def _get_task_meta_for(self, task_id: str) -> dict[str, Any]:
        return self.meta_of(task_id, results.read(self.argus.runtime.store, [task_id]).get(task_id))

    def get_many(
        self,
        task_ids: Collection[str],
        timeout: float | None = None,
        interval: float | None = None,
        no_ack: bool = True,
        on_message: Callable[[Any], Any] | None = None,
        on_interval: Callable[[], Any] | None = None,
        max_iterations: int | None = None,
        READY_STATES: Collection[str] = states.READY_STATES,
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """(id, meta) of each task as it gets ready; all are looked at in one statement."""
        left = {bytes_to_str(task_id) for task_id in task_ids}
        ends = None if timeout is None else time.monotonic() + timeout
        pause, iterations = SHORTEST_PAUSE, 0
        while left:
            for task_id, row in results.read(self.argus.runtime.store, sorted(left)).items():
                found = self.meta_of(task_id, row)
                if found["status"] in READY_STATES:
                    left.discard(task_id)
                    if on_message is not None:
                        on_message(found)
                    yield task_id, found
            iterations += 1
            if not left or (max_iterations and iterations >= max_iterations):
                return
            self.argus.runtime.store.check_outside("results cannot be waited for")
            if on_interval is not None:
                on_interval()
            if ends is not None and time.monotonic() >= ends:
                raise TimeoutError(f"Operation timed out ({timeout})")
            time.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE)

    # --- groups ----------------------------------------------------------------------------------------------------

    def _save_group(self, group_id: str, result: Any) -> Any:
        check_name("the group id", group_id)
        document = self._fitting(f"the group {group_id}", {"result": result.as_tuple()})
        groups.save(self.argus.runtime.store, group_id, document)
        return result

    def _restore_group(self, group_id: str) -> dict[str, Any] | None:
        document = groups.read(self.argus.runtime.store, group_id)
        if document is None:
            return None
        return {"result": result_from_tuple(self.decode(document)["result"], self.app)}

    def _delete_group(self, group_id: str) -> None:
        groups.delete(self.argus.runtime.store, group_id)

    # --- forgetting ------------------------------------------------------------------------------------------------

    def _forget(self, task_id: str) -> None:
        """The result is dropped. The row stays until it is pruned, and its key holds."""
        forget(self.argus.runtime, [task_id])

    def cleanup(self) -> None:
        """What ``celery.backend_cleanup`` does: forget what is older than ``result_expires``."""
        forget_old(self.argus.runtime, self.expires, self.failure_expires)
