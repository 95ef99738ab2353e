"""Every error Argus raises: one small tree, each with a sentence that says what to do."""

from __future__ import annotations

from celery.exceptions import Ignore, WorkerLostError
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


class ProjectClosed(ArgusError):
    """The project takes no more tasks from outside (closed, ended or cancelled)."""


class ProjectNotFound(ArgusError, LookupError):
    """There is no project of this name."""


class NoClaim(ArgusError):
    """The call needs a running durable task, and there is none here."""


class LeaseLost(ArgusError, Ignore):
    """This run no longer holds its lease: another may run the task, and nothing more is written.

    It is a Celery ``Ignore``, so that a body which lets it pass ends without an outcome.
    """


class TaskDead(ArgusError, WorkerLostError):
    """The task lost its worker too often and is kept as a dead letter."""
