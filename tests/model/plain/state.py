"""What there is in the plain model: tasks, their leases, projects, and all messages that were ever sent."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.model.worlds import TIMES

NOBODY, QUEUE = "", "queue"
LEASE_TTL, DISPATCH_TTL, DISPATCH_TTL_MAX = (
    1000 * TIMES[one] for one in ("lease_ttl", "dispatch_ttl", "dispatch_ttl_max")
)
WINDOW, MAX_LOSSES, PAUSE_AFTER_FAILURE, RETENTION = 4, 2, 1000, 60_000
NEVER = 2**51
LIVE, ENDED = ("open", "closed"), ("completed", "failed", "cancelled")
RETRIABLE = ("failed", "dead", "expired")
BY_PAUSE, BY_LIMIT = 1, 2
SLOTS = {"narrow": 1, "wide": 2}
"""The limits there are: how many tasks may be with the broker or running."""


class Ambiguous(Exception):
    pass


class Refused(Exception):
    """The operation is answered with an error of this name, and has changed nothing."""


@dataclass
class Lease:
    token: int
    holder: str
    due: int
    expires: int | None = None
    waits: int = 0
    paused: int = 0
    dispatches: int = 0
    follows: bool = False


@dataclass
class Task:
    id: str
    project: str
    queue: str
    body: str
    came: int
    key: str | None = None
    unique: str | None = None
    limits: tuple[str, ...] = ()
    lease: Lease | None = None
    outcome: str | None = None
    fence: int = 0
    abandoned: bool = False
    attempts: int = 0
    losses: int = 0
    retries: int = 0
    owes: int = 0
    finished: int | None = None
    runs: dict[int, tuple[str, str]] = field(default_factory=dict)
    """By token: who ran it, and how that ended."""
    steps: dict[str, int] = field(default_factory=dict)
    """By name: the token it was recorded under."""
    after: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    """By parent: does it run whatever becomes of that, and was it told."""
    awaits: tuple[str | None, int | None] | None = None
    """The event it is suspended for, and until when."""
    line: str | None = None
    """The limit whose slot it waits for."""
    since: tuple[int, int] = (0, 0)
    has_slots: bool = False


@dataclass
class Project:
    status: str = "open"
    paused: bool = False
    finished: int | None = None
    events: dict[str, int] = field(default_factory=dict)


@dataclass
class State:
    now: int = 0
    tasks: dict[str, Task] = field(default_factory=dict)
    projects: dict[str, Project] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=dict)
    """Ids that were revoked before there was a task, and when."""
    sent: list[tuple[str, int, str]] = field(default_factory=list)
    """All messages that the broker ever had: task, token, body."""
    broker: str | None = None
    """What it does to what is published in this operation: refuses or loses it."""
    to_look_at: set[str] = field(default_factory=set)
    """Limits whose line the next dispatch looks at."""
    any_order: bool = False
    """Of what came at one instant, let any go first; else it is ``Ambiguous`` what goes."""
    room: dict[str, int] = field(default_factory=dict)
    """Of the window, as this operation has found it."""

    def begin(self, broker: str | None = None) -> None:
        self.now, self.broker, self.room = self.now + 1, broker, {}

    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds

    # --- reading ---------------------------------------------------------------------------------------------------

    def _known(self, project: str) -> Project:
        if project not in self.projects:
            raise Refused("ProjectNotFound")
        return self.projects[project]

    def _of(self, project: str) -> list[Task]:
        """Those that live, by id."""
        return sorted(
            (task for task in self.tasks.values() if task.project == project and task.lease), key=lambda one: one.id
        )

    def _lease(self, task_id: str) -> Lease:
        lease = self.tasks[task_id].lease
        assert lease is not None
        return lease

    def _due_of(self, task: Task) -> int:
        return self._lease(task.id).due

    def _held(self, holder: str, task_id: str, token: int) -> bool:
        lease = self.tasks[task_id].lease if task_id in self.tasks else None
        return lease is not None and (lease.token, lease.holder) == (token, holder)

    def _mine(self, holder: str, task_id: str, token: int) -> Task:
        if not self._held(holder, task_id, token):
            raise Refused("LeaseLost")
        return self.tasks[task_id]

    def _waits(self, lease: Lease) -> bool:
        return (lease.holder, lease.paused, lease.waits) == (NOBODY, 0, 0) and lease.due <= self.now

    def _in_broker(self, queue: str) -> int:
        return sum(task.queue == queue for task in self.tasks.values() if task.lease and task.lease.holder == QUEUE)

    def _hand_back(self, task: Task, due: int) -> None:
        lease = self._lease(task.id)
        lease.holder, lease.due, lease.dispatches = NOBODY, due, 0
