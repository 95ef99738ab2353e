"""The values that cross layers. All times are integer milliseconds of the store's clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

NOBODY = ""
"""Holder of a row that waits in the store. Not NULL: only an equality keeps an index order."""
QUEUE = "queue"
"""Holder of a row that was handed to the broker. Worker ids start with ``w`` and so sort behind it."""
TOKEN_HEADER = "argus_token"
"""Message header that carries the fencing token the row had when the message was sent."""


class TaskState(StrEnum):
    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    DEAD = "dead"

    @property
    def ended(self) -> bool:
        return self not in (TaskState.WAITING, TaskState.QUEUED, TaskState.RUNNING)


class AttemptOutcome(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RETRIED = "retried"
    RELEASED = "released"
    LOST = "lost"
    REFUSED = "refused"
    SUSPENDED = "suspended"


class ProjectStatus(StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def live(self) -> bool:
        return self in (ProjectStatus.OPEN, ProjectStatus.CLOSED)


@dataclass(frozen=True, slots=True)
class Message:
    """A task message exactly as it was handed to kombu, without the token header."""

    body: bytes
    content_type: str
    content_encoding: str
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    exchange: str
    routing_key: str
    queue: str


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to be recorded. ``delay_ms`` (from now) and ``due_at`` (an instant) exclude each other."""

    id: str
    name: str
    message: Message
    project: str | None = None
    """Name of the project; ``None`` is the default project (in a completion: the parent's)."""
    project_id: int | None = None
    """Set instead of ``project`` where the id is known already: the parent's project."""
    key: str | None = None
    priority: int = 0
    delay_ms: int | None = None
    due_at: int | None = None
    expires_in_ms: int | None = None
    expires_at: int | None = None
    lease_ttl_ms: int | None = None
    max_losses: int | None = None
    parent_id: str | None = None
    root_id: str | None = None
    group_id: str | None = None
    inside: bool = False
    """Enqueued by a running durable task (or as its continuation): allowed in a closed project."""
    takes_over: bool = False
    """The last of what replaced the task of this id: the row that waits for it goes on with this message."""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of a ``NewTask``: its row's id (the first one's, if the key or id was known)."""

    task_id: str
    created: bool
    token: int
    """0 where the row stays in the store for now; else the token its message bears."""
    differs: bool = False
    """The id or key was known with another task or other arguments: the first wins."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One message to publish, with the token to put into its header."""

    task_id: str
    token: int
    message: Message


Publish = Callable[[Sequence[Dispatch]], Sequence[str]]
"""Publishes in order; returns the ids whose message surely did not leave. Never raises for one message."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that arrived: the task's id and the token in its header."""

    task_id: str
    token: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A held lease: the only ticket for writing as a running task."""

    task_id: str
    token: int
    holder: str
    project_id: int
    ttl_ms: int
    deadline: float
    """``time.monotonic()`` until which the grant can be trusted, if it is not renewed."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """Answer to a renewal, as sets of (task id, token)."""

    held: frozenset[tuple[str, int]]
    lost: frozenset[tuple[str, int]]
    """Seen under another token or holder, or ended by another: whoever runs this must be told."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended for good."""

    state: TaskState
    result: bytes | None = None
    """The encoded result document of the ``argus://`` backend, kept whatever backend the user has."""
    error: str | None = None
    undelivered: bool = False
    """A foreign result backend is still owed this outcome."""
    continuations: tuple[NewTask, ...] = ()
    """Callbacks, chain, errbacks: recorded in the completing transaction."""


@dataclass(frozen=True, slots=True)
class HolderFacts:
    """One worker incarnation and what proves it dead: same host, boot and pid namespace, and the process is gone."""

    id: str
    node: str
    host: str
    pid: int
    boot_id: str
    pid_namespace: str
    process_start: str


@dataclass(frozen=True, slots=True)
class DispatchReport:
    dispatched: tuple[str, ...] = ()
    lapsed: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    """Expired, or of a cancelled project."""
    more: bool = False
    """Due rows were left for the next call (bounded work, full window)."""
    next_due_ms: int | None = None
    """Milliseconds until the earliest row becomes due, where one is scheduled."""
    closed: bool = False
    """There was a closed project, that may have drained."""
    owed: bool = False
    """There was an outcome owed to a foreign result backend or an errback (``flow.deliver``)."""


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """What a person wants to see of one task."""

    id: str
    name: str
    project: str
    key: str | None
    state: TaskState
    queue: str
    attempts: int
    losses: int
    retries: int
    holder: str
    token: int
    created_at: int
    finished_at: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class ProjectInfo:
    name: str
    status: ProjectStatus
    paused: bool
    created_at: int
    closed_at: int | None
    finished_at: int | None
    counts: Mapping[TaskState, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def ended(self) -> int:
        return sum(count for state, count in self.counts.items() if state.ended)


@dataclass(frozen=True, slots=True)
class AttemptInfo:
    """One run of a task that has ended."""

    task_id: str
    token: int
    holder: str
    started_at: int | None
    finished_at: int
    outcome: AttemptOutcome
    detail: str | None
