"""Who ran what and when, as ``project.timeline()`` tells it. All times are milliseconds of the store's clock."""

from __future__ import annotations

from dataclasses import dataclass

from argus_celery.records import AttemptOutcome, last_known

Earlier = tuple[int, str, int]
"""Where a page of a timeline begins: an instant, a task's id and a token."""


@dataclass(frozen=True, slots=True)
class TimelineAttempt:
    """One run of a task, under one token, by one worker."""

    task_id: str
    name: str
    key: str | None
    token: int
    holder: str
    """The worker incarnation; a worker that is started again is another."""
    node: str | None
    """The worker's name, as ``celery inspect`` shows it; None where it left none."""
    started_at: int | None
    """None: it was granted and lost before it began."""
    finished_at: int | None = None
    """None: it is running. Of a lost one, when that was noticed."""
    outcome: AttemptOutcome | None = None
    detail: str | None = None
    """Why it ended so: at most the last 2,000 characters."""
    seen_at: int | None = None
    """Of a lost one: its last sign of life, which is a renewal, a step or progress."""
    died: bool = False
    """Its process is known to have died; else a lost one has only fallen silent."""

    @property
    def began_at(self) -> int:
        """When it was started, or else when it was noticed as lost."""
        began = self.started_at if self.started_at is not None else self.finished_at
        assert began is not None, "a run that has not ended has begun"
        return began

    @property
    def known_until(self) -> int | None:
        """When it was last known to run: its end, or the last sign of life of a lost one."""
        return None if self.finished_at is None else last_known(self.began_at, self.seen_at, self.finished_at)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Attempts of a project, in the order in which they began. All times are milliseconds by the store's clock."""

    project: str
    now: int
    """When it was read."""
    attempts: tuple[TimelineAttempt, ...]
    earlier: Earlier | None = None
    """Give it to ``project.timeline(before=…)`` for the page before this one; None: there is none."""

    @property
    def hand_overs(self) -> list[tuple[TimelineAttempt, TimelineAttempt]]:
        """Each run that was lost or given back, with the next one of its task, in the order in which those began."""
        last: dict[str, TimelineAttempt] = {}
        pairs = []
        for one in sorted(self.attempts, key=lambda attempt: attempt.token):
            before = last.get(one.task_id)
            if before is not None and before.outcome in (AttemptOutcome.LOST, AttemptOutcome.RELEASED):
                pairs.append((before, one))
            last[one.task_id] = one
        return sorted(pairs, key=lambda pair: pair[1].began_at)
