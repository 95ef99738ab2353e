"""Does this Celery have the hooks that Argus needs, and are they in place? Asked once, when a worker starts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import celery
import kombu
from celery import Celery, canvas
from celery.app import trace
from celery.app.amqp import AMQP
from celery.backends.base import Backend

from argus_celery.errors import HookError
from argus_celery.hooks.annotations import Annotations
from argus_celery.hooks.body import BODY
from argus_celery.hooks.children import canvas_id
from argus_celery.hooks.chords import REPLACED
from argus_celery.hooks.durable import is_durable
from argus_celery.hooks.publish import Recording
from argus_celery.hooks.trace import SLOT


def check(app: Celery) -> None:
    """Raises ``HookError`` with one sentence that says what does not fit."""
    wrong = next(_misfits(app), None)
    if wrong is not None:
        raise HookError(f"{wrong} (celery {celery.__version__}, kombu {kombu.__version__})")


def _misfits(app: Celery) -> Iterator[str]:
    for holds, sentence in _EXPECTED:
        if not holds(app):
            yield sentence
    for task in list(app._tasks.values()):
        if is_durable(task) and _is_batched(task):
            yield f"{task.name} is made of celery-batches, whose runs are of many messages, and cannot be durable"
        if is_durable(task) and "__trace__" in dir(type(task)) and not _slotted(task):
            yield f"the durable task {task.name} was made without the hooks of Argus: call Argus(app) before it is used"


def _is_batched(task: object) -> bool:
    """One run of celery-batches is many messages, and it goes past the tracer, where a claim is made."""
    return any(cls.__module__.partition(".")[0] == "celery_batches" for cls in type(task).__mro__)


def _slotted(task: object) -> bool:
    return next((c.__dict__["__trace__"] for c in type(task).__mro__ if "__trace__" in c.__dict__), None) is SLOT


def _has(owner: object, name: str) -> Callable[[Celery], bool]:
    return lambda app: callable(getattr(owner, name, None))


def _tracer_takes_info(app: Celery) -> bool:
    taken = inspect.signature(trace.build_tracer).parameters
    # Where somebody has wrapped it, it takes anything.
    return "Info" in taken or any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values())


def _tracer_keeps_body(app: Celery) -> bool:
    made = [code for code in trace.build_tracer.__code__.co_consts if getattr(code, "co_name", "") == "trace_task"]
    # Where somebody has wrapped it, it cannot be seen.
    return all(BODY in code.co_freevars for code in made)


_EXPECTED: list[tuple[Callable[[Celery], bool], str]] = [
    (
        _has(AMQP, "_create_task_sender"),
        "Celery's AMQP has no _create_task_sender, so tasks cannot be recorded",
    ),
    (_has(AMQP, "_retry_publish"), "Celery's AMQP has no _retry_publish, so callbacks cannot wait for the completion"),
    (
        lambda app: canvas.uuid is canvas_id,
        "celery.canvas has another uuid, so a run repeated after a loss would enqueue its canvases again",
    ),
    (
        lambda app: all(callable(getattr(Backend, name, None)) for name in REPLACED),
        "Celery's result backends have not the chord methods that Argus replaces, so chords cannot be counted",
    ),
    (_tracer_takes_info, "Celery's build_tracer takes no Info, so a lost lease would look like a failure"),
    (
        _tracer_keeps_body,
        "Celery's tracer does not keep the body as it did, so a task that waits would look like a fault",
    ),
    (lambda app: isinstance(app.amqp, Recording), "app.amqp was replaced after Argus(app), so tasks are not recorded"),
    (
        lambda app: isinstance(app.annotations, Annotations),
        "app.annotations was replaced after Argus(app), so durable tasks get no hooks",
    ),
]
