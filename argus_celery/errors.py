"""Every error Argus raises: one small tree, each with a sentence that says what to do."""

from __future__ import annotations

from celery.exceptions import Ignore, SoftTimeLimitExceeded, TaskPredicate, WorkerLostError
from kombu.exceptions import OperationalError


class ArgusError(Exception):
    """Base class of all errors raised by Argus."""


class SettingError(ArgusError):
    """A setting is unknown or has a value that cannot work."""


class HookError(ArgusError):
    """The installed Celery or kombu does not have a hook that Argus needs."""


class StoreError(ArgusError):
    """The store cannot be used as it is (schema missing or of another version, another app's store)."""


class StoreUnavailable(ArgusError, OperationalError):
    """The store cannot be reached now. Nothing was published; calling again later is safe."""


class PayloadTooLarge(ArgusError, ValueError):
    """Arguments or result are larger than ``argus_max_payload``."""


class BadTask(ArgusError, ValueError):
    """A task cannot be recorded as it was given: an id, key or name that no store can hold, a time that is no time."""


class KeyConflict(ArgusError, ValueError):
    """A key is known with another task or other arguments (``argus_key_conflict="error"``). Nothing was written."""


class BadStep(ArgusError, ValueError):
    """A step, an ``each`` or a wait cannot be as it was asked for: its name, its options, its place, or its value."""


class BadEvent(ArgusError, ValueError):
    """An event cannot be told or waited for as it was given: its name, or its payload."""


class StepTimeout(ArgusError, TimeoutError):
    """The function of a step took longer than the step's ``timeout``."""


class BadTransaction(ArgusError, ValueError):
    """The transaction that a task was to be part of cannot take it: another database, AUTOCOMMIT, or no such handle."""


class BadOption(ArgusError, ValueError):
    """An option of a project is unknown or has a value that cannot work."""


class ProjectClosed(ArgusError):
    """The project takes no more tasks from outside (closed, ended or cancelled)."""


class ProjectPruned(ProjectClosed):
    """The project ended long ago, and its rows are gone."""


class ProjectNotFound(ArgusError, LookupError):
    """There is no project of this name."""


class TaskNotFound(ArgusError, LookupError):
    """The project has no task of this id."""


class NotRetriable(ArgusError):
    """The task cannot be put back: it has not failed, or it only waits for another that has."""


class NoClaim(ArgusError):
    """The call needs a running durable task, and there is none here."""


class WaitTimeout(ArgusError, TimeoutError):
    """The event that was waited for did not come in time."""


class Suspended(BaseException):
    """A run ends to wait. Let it pass: it is no ``Exception``, so that a body does not meet it by mistake."""


class LeaseLost(ArgusError, Ignore):
    """This run no longer holds its lease: another may run the task, and nothing more is written.

    It is a Celery ``Ignore``, so that a body which lets it pass ends without an outcome.
    """


class BodyCancelled(ArgusError):
    """The body of a coroutine task ended with an ``asyncio.CancelledError`` that came from the body itself."""


class TaskDead(ArgusError, WorkerLostError):
    """The task lost its worker too often and is kept as a dead letter."""


class TaskAbandoned(ArgusError):
    """The task never ran: what it was to come after has failed."""


NOT_FOR_RETRY = (TaskPredicate, SoftTimeLimitExceeded, BadStep, PayloadTooLarge, NoClaim)
"""What a step lets pass, however many retries it has: the run is to end, or would fail the same way again."""
