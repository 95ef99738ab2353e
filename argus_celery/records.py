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
FIRST_TOKEN = 1
"""The token of a task's first message; the first run has the next one."""


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
    CANCELLED = "cancelled"


class ProjectStatus(StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def live(self) -> bool:
        return self in (ProjectStatus.OPEN, ProjectStatus.CLOSED)


class OnFailure(StrEnum):
    """What becomes of a project when a task of it has failed for good."""

    CONTINUE = "continue"
    PAUSE = "pause"
    CANCEL = "cancel"


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
    declares: Sequence[Mapping[str, Any]] = ()
    """Queues of this one call, which the app does not know: what declaring each of them takes."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One limit that a task is under: its name, and what it allows."""

    name: str
    concurrency: int | None = None
    spacing: int | None = None
    """Microseconds between two starts."""
    burst: int = 1
    """How many of them may come at once."""

    def __str__(self) -> str:
        """``3 at once``, ``a start every 0.6 s, 5 of them together after a rest``."""
        slots = None if self.concurrency is None else f"{self.concurrency:,} at once"
        starts = None if self.spacing is None else f"a start every {self.spacing / 1_000_000:g} s"
        burst = f"{self.burst:,} of them together after a rest" if starts and self.burst > 1 else None
        return ", ".join(part for part in (slots, starts, burst) if part)


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to be recorded. ``delay_ms`` (from now) and ``due_at`` (an instant) exclude each other."""

    id: str
    name: str
    message: Message
    project: str | None = None
    """Name of the project; ``None`` is the default project (in a completion: the parent's)."""
    project_id: int | None = None
    """Set instead of ``project`` where the id is known already: the parent's project. With it, it is looked up anew if
    that id is gone."""
    key: str | None = None
    key_conflict: str | None = None
    """``first`` or ``error``: what a key leads to that is known with other arguments. ``None`` is the setting."""
    priority: int = 0
    ranked: bool = False
    """The call named a priority; else its project's holds, if that has one."""
    delay_ms: int | None = None
    due_at: int | None = None
    expires_in_ms: int | None = None
    expires_at: int | None = None
    expires_as_before: bool = False
    """A retry that has the expiry of its run: it is what the row says, which has none once the task has waited."""
    lease_ttl_ms: int | None = None
    max_losses: int | None = None
    parent_id: str | None = None
    root_id: str | None = None
    group_id: str | None = None
    inside: bool = False
    """Enqueued by a running durable task (or as its continuation): allowed in a closed project."""
    takes_over: bool = False
    """The last of what replaced the task of this id: the row that waits for it goes on with this message."""
    follows: bool = False
    """Its message has a chain or a chord behind it, which are to be told if it ends without a run."""
    joins: str | None = None
    """The chord that it is added to, one part more."""
    unique: str | None = None
    """The mark of its kind, of which only one lives at a time."""
    after: tuple[str, ...] = ()
    """Ids or keys of the tasks of its project that it comes after: it waits until all have ended."""
    limits: tuple[Bound, ...] = ()
    regardless: bool = False
    """It runs whatever becomes of those; else it is abandoned if one of them ends otherwise than by success."""


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


SameCall = Callable[[Message, Message], bool]
"""Do two messages call the same task with the same arguments? Bodies may differ in what each call makes anew."""

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
    stalled: frozenset[tuple[str, int]] = frozenset()
    """Held, and due all the same: they have shown no progress in time."""


@dataclass(frozen=True, slots=True)
class NewChord:
    """A chord to be counted: the body and what it will be given, under the id of the header's group."""

    id: str
    body: bytes
    structure: bytes | None = None
    """The shape of a nested header, as the ids of its tasks."""
    size: int | None = None
    """How many parts will come; None until the header was sent whole."""
    done: int = 0
    """Parts that will not come by themselves: of a task that stands in the header twice, the second."""
    project_id: int | None = None


@dataclass(frozen=True, slots=True)
class ChordPart:
    """How one task of a chord's header ended, in the words of Celery."""

    chord_id: str
    task_id: str
    position: int | None
    state: str
    result: bytes


@dataclass(frozen=True, slots=True)
class OwedChord:
    """A chord whose parts are all in, in order."""

    id: str
    project_id: int | None
    body: bytes
    structure: bytes | None
    parts: tuple[ChordPart, ...]
    turn: int
    """When its last task ended: higher after some of them have ended once more."""
    recorded: bool = False
    """Only messages of ordinary tasks may not have left yet."""


class PartCount(StrEnum):
    """What became of a part that was to be counted."""

    UNKNOWN = "unknown"
    """The store does not know the chord."""
    COUNTED = "counted"
    """Now, or before."""
    READY = "ready"
    """The same, and the chord is owed its body."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended for good."""

    state: TaskState
    result: bytes | None = None
    """The encoded result document of the ``argus://`` backend, kept whatever backend the user has."""
    error: str | None = None
    undelivered: bool = False
    """A foreign result backend is still owed this outcome."""
    follows: bool = False
    """What was to follow and never comes now is still to be told so."""
    part: ChordPart | None = None
    """Counted in the completing transaction."""
    joined: tuple[str, ...] = ()
    """For each part more that will come of a chord, the chord."""
    continuations: tuple[NewTask, ...] = ()
    """Callbacks, chain, errbacks: recorded in the completing transaction."""
    chords: tuple[NewChord, ...] = ()
    """The chords among them."""


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
    lost_by: tuple[str, ...] = ()
    """The holder that lost each of ``lapsed``."""
    dead: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    """Expired, or of a cancelled project."""
    expired: tuple[str, ...] = ()
    more: bool = False
    """Due rows were left for the next call (bounded work, full window)."""
    parked: int = 0
    """How many due rows found no room under a limit, and are out of sight now."""
    next_due_ms: int | None = None
    """Milliseconds until the earliest row becomes due, where one is scheduled."""
    closed: bool = False
    """There was a closed project, that may have drained."""
    owed: bool = False
    """There was an outcome owed to a result backend or to what follows, or a chord owed its body."""
    alarmed: bool = False
    """There was a project that a sweep has something to do to: a deadline is over, or a task of it failed."""
    held: bool = False
    """The queue or a worker held a row."""


@dataclass(frozen=True, slots=True)
class Suspension:
    """What a task waits for whose run has ended to wait."""

    event: str | None
    """None: for an instant only."""
    since: int
    until: int | None
    """None: for ever."""


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
    waits_for: tuple[str, ...] = ()
    """The ids of the tasks that have to end before it can run, in the order of ``after``."""
    suspended: Suspension | None = None
    """What it waits for in the middle of its work."""
    limit: Bound | None = None
    """The limit in whose line it waits."""
    parked: bool = False
    """Its project is paused, and keeps it."""
    due_at: int | None = None
    """Of one that waits for an instant, or for room with the broker: since or from when it may go out."""
    started_at: int | None = None
    """Of the run in hand."""
    node: str | None = None
    """The name of the worker that runs it."""

    @property
    def since(self) -> int:
        """When it came into its state: when its run began, it ended, or else it was enqueued."""
        return self.finished_at or self.started_at or self.created_at


@dataclass(frozen=True, slots=True)
class ProjectInfo:
    name: str
    status: ProjectStatus
    paused: bool
    created_at: int
    closed_at: int | None
    finished_at: int | None
    counts: Mapping[TaskState, int] = field(default_factory=dict)
    on_failure: OnFailure = OnFailure.CONTINUE
    priority: int = 0
    """Of the messages of its tasks, where the call names none."""
    weight: int = 1
    deadline_at: int | None = None
    reason: str | None = None
    """Why it was cancelled or paused, where somebody or a rule said so."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    suspended: int = 0
    """How many of the waiting ones are in the middle of their work, and wait for an instant or an event."""
    limit: Bound | None = None
    """How many of its tasks may run at once, or start in a time."""

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
    """Of a lost one, when that was noticed."""
    outcome: AttemptOutcome
    detail: str | None
    seen_at: int | None = None
    """Of a lost one: its last sign of life, which is a renewal, a step or progress."""
    died: bool = False
    """Its process is known to have died; else a lost one has only fallen silent."""

    @property
    def known_until(self) -> int:
        """When it was last known to run: its end, or the last sign of life of a lost one."""
        return last_known(self.started_at, self.seen_at, self.finished_at)


def last_known(began: int | None, seen: int | None, finished: int) -> int:
    """When a run was last known to go on; a sign of life says no more than its begin and its end do."""
    return finished if seen is None else min(max(seen, began or seen), finished)


@dataclass(frozen=True, slots=True)
class StepInfo:
    """A step of a task that is finished."""

    name: str
    token: int
    finished_at: int
    size: int | None
    """Bytes of its value; None of what has none, as an item of ``each``."""
