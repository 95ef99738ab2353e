"""The body of a durable task as Celery's tracer calls it, with the end of a run that waits.

A body waits by an exception that no ``except Exception`` of its own meets. Celery's tracer knows no such end: behind
the body, and before the tracer, it becomes an ``Ignore``. Whatever else the body makes of it does not count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from inspect import unwrap
from typing import Any

from celery.exceptions import Ignore

from argus_celery.errors import BadStep, LeaseLost, Suspended
from argus_celery.hooks.grouped import out_of_group
from argus_celery.hooks.outbox import Execution, execution_here
from argus_celery.hooks.timelimits import HardTimeLimit

logger = logging.getLogger(__name__)

BODY = "fun"
"""The variable in which Celery's tracer keeps what it calls."""


class SuspendedRun(Ignore):
    """The body waits: its run ends, and the task goes on in a later one."""


def surround(tracer: Any) -> None:
    """Let this tracer call the body through ``surrounded``."""
    cell = cell_of(tracer)
    if cell is not None:
        cell.cell_contents = surrounded(cell.cell_contents)


def cell_of(tracer: Any) -> Any:
    """Where a tracer of Celery's keeps what it calls; None in another."""
    code, cells = getattr(unwrap(tracer), "__code__", None), getattr(unwrap(tracer), "__closure__", None)
    return dict(zip(code.co_freevars, cells, strict=True)).get(BODY) if code is not None and cells else None


def surrounded(fun: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(fun, updated=())
    def body(*args: Any, **kwargs: Any) -> Any:
        execution = execution_here()
        if execution is None:
            return fun(*args, **kwargs)
        try:
            value = fun(*args, **kwargs)
        except BaseException as error:
            end = out_of_group(error)
            if execution.waits.reached is None or _stands_above(end):
                if isinstance(end, Ignore) and not execution.handed_on:
                    _check_refused(execution)
                if end is error:
                    raise
                raise end from error
            _warn(execution, error)
        else:
            if execution.waits.reached is None:
                _check_steps(execution)
                return value
            logger.warning("argus: task %s waits, %s; what it returned does not count", execution.claim.task_id, _LET)
        raise SuspendedRun(f"task {execution.claim.task_id} waits")

    return body


_LET = "but its body caught Suspended: let it pass, as by except Exception"


def _stands_above(error: BaseException) -> bool:
    """Is it an end of the process, or of the claim?"""
    return isinstance(error, (LeaseLost, HardTimeLimit, SystemExit, KeyboardInterrupt, MemoryError)) or (
        type(error).__name__ == "GreenletExit"
    )


def _warn(execution: Execution, error: BaseException) -> None:
    rest = error.split(Suspended)[1] if isinstance(error, BaseExceptionGroup) else error
    if rest is not None and not isinstance(rest, Suspended):
        logger.warning("argus: task %s waits, %s; this does not count: %r", execution.claim.task_id, _LET, error)


def _check_refused(execution: Execution) -> None:
    """The body is over; it may have caught what its steps have raised."""
    if execution.steps.names.refused is not None:
        raise BadStep(f"task {execution.claim.task_id}: {execution.steps.names.refused}")


def _check_steps(execution: Execution) -> None:
    _check_refused(execution)
    calls = list(execution.steps.unawaited.values())
    if calls:
        raise BadStep(
            f"task {execution.claim.task_id}: what a coroutine has called was not awaited, and so was not done:"
            f" await {', '.join(calls[:5])}"
        )
