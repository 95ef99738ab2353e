"""What producers and workers ask for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tests.model.plain.ends import Ends
from tests.model.plain.state import (
    BY_LIMIT,
    DISPATCH_TTL,
    LEASE_TTL,
    LIVE,
    NEVER,
    NOBODY,
    QUEUE,
    Lease,
    Project,
    Refused,
    Task,
)


class Work(Ends):
    # --- enqueue -----------------------------------------------------------------------------------------------------

    def enqueue(
        self, task_id: str, project: str, queue: str, *, key: str | None = None, unique: str | None = None,
        limits: tuple[str, ...] = (), delay: int = 0, expires: int | None = None, after: Sequence[str] = (),
        regardless: bool = False,
    ) -> tuple[str, bool]:  # fmt: skip
        self.projects.setdefault(project, Project())
        task = Task(task_id, project, queue, task_id, self.now, key, unique, limits)
        first, out, failed = self._record(task, delay, expires, after, regardless)
        if first is not None:
            return first, False
        self._publish(out)
        self._follow_up(failed)
        return task_id, True

    def _record(
        self, task: Task, delay: int = 0, expires: int | None = None, after: Sequence[str] = (),
        regardless: bool = False, *, inside: bool = False,
    ) -> tuple[str | None, list[Task], list[str]]:  # fmt: skip
        """The task that stands for it already, or what to publish, and the failed tasks that it comes after."""
        project, alive = self.projects[task.project], [one for one in self.tasks.values() if one.lease]
        same = [
            one.id for one in self.tasks.values() if task.key and (one.project, one.key) == (task.project, task.key)
        ]
        same += [one.id for one in alive if task.unique and one.unique == task.unique]
        if same:
            return same[0], [], []
        if project.status != "open" and not inside:
            raise Refused("ProjectClosed")
        for parent in after:
            if parent not in self.tasks:
                raise Refused("BadTask")
        task.after = {parent: (regardless, self._is_met(parent, regardless)) for parent in after}
        waits = sum(not told for _, told in task.after.values())
        is_due = not project.paused and not waits and not delay
        task.since = (self.now, 0)
        if is_due and not self._has_room(task.limits):
            task.line = self._line_for(task.limits)
        direct = is_due and task.line is None and self._fits(task.queue)
        until = None if expires is None else self.now + expires
        due = self.now + (DISPATCH_TTL if direct else delay)
        due = min(due, until) if direct and until is not None else due
        paused = BY_LIMIT if task.line else int(project.paused)
        task.lease = Lease(int(direct), QUEUE if direct else NOBODY, due, until, waits, paused, int(direct))
        task.has_slots = direct and bool(task.limits)
        self.tasks[task.id] = task
        failed = [parent for parent, (_, told) in task.after.items() if not told and self.tasks[parent].lease is None]
        woken, further = self._wake(failed)
        return None, [*([task] if direct else []), *woken], further

    def _is_met(self, parent: str, regardless: bool) -> bool:
        one = self.tasks[parent]
        return one.lease is None and (regardless or one.outcome == "succeeded")

    # --- workers -----------------------------------------------------------------------------------------------------

    def claim(self, holder: str, task_id: str, token: int) -> int | None:
        """The token that is granted."""
        task = self.tasks.get(task_id)
        if task is None:
            return None
        if self._is_granted(task, token):
            lease = self._lease(task_id)
            lease.token, lease.holder, lease.due, lease.dispatches = token + 1, holder, self.now + LEASE_TTL, 0
            return lease.token
        if task_id in self.marks and task.lease:
            self.revoke([task_id])
        return None

    def _is_granted(self, task: Task, token: int) -> bool:
        lease = task.lease
        if lease is None or (lease.token, lease.holder, lease.paused) != (token, QUEUE, 0) or task.id in self.marks:
            return False
        return self._goes_on(task)

    def renew(
        self, holder: str, claims: Iterable[tuple[str, int]]
    ) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        """What is held, and what is lost."""
        claims = sorted(claims)
        held = [one for one in claims if self._held(holder, *one)]
        for task_id, _ in held:
            self._lease(task_id).due = self.now + LEASE_TTL
        cancelled = [one for one in held if self.projects[self.tasks[one[0]].project].status == "cancelled"]
        self.revoke([task_id for task_id, _ in cancelled])
        held = [one for one in held if one not in cancelled]
        return held, [one for one in claims if one not in held]

    def complete(
        self, holder: str, task_id: str, token: int, *, failed: bool, children: Sequence[str], owed: bool
    ) -> None:
        task = self._mine(holder, task_id, token)
        status = self.projects[task.project].status
        out, further = self._end([task], "failed" if failed else "succeeded", ran=True, owes=int(owed))
        for child in children if status in LIVE else ():
            out += self._record(Task(child, task.project, "celery", child, self.now), inside=True)[1]
        self._publish(out)
        self._follow_up(further)

    def retry(self, holder: str, task_id: str, token: int, *, body: str, delay: int, queue: str) -> None:
        task = self._mine(holder, task_id, token)
        task.runs[token] = (holder, "retried")
        if self._end_if_cancelled(task):
            return
        task.body, task.queue, task.retries, task.attempts = body, queue, task.retries + 1, task.attempts + 1
        self._hand_back(task, self.now + delay)
        self._lease(task_id).follows, self._lease(task_id).expires = False, None
        self._publish(self._dispatch_own([task], keeps=[task]))

    def release(self, holder: str, task_id: str, token: int, *, delay: int) -> bool:
        if not self._held(holder, task_id, token):
            return False
        task = self.tasks[task_id]
        task.runs[token], task.attempts = (holder, "released"), task.attempts + 1
        self._hand_back(task, self.now + delay if delay else task.came)
        self._publish(self._dispatch_own([task], keeps=[task]))
        return True

    def lapse(self, holder: str, task_id: str, token: int) -> str | None:
        """A child process was lost."""
        if not self._held(holder, task_id, token):
            return None
        task = self.tasks[task_id]
        dead, out, further = self._lose([task])
        if not dead:
            self._hand_back(task, task.came)
            out += self._dispatch_own([task], keeps=[task])
        self._publish(out)
        self._follow_up(further)
        return "dead" if dead else "queued"

    def wait(self, holder: str, task_id: str, token: int, *, event: str | None, until: int | None) -> None:
        task = self._mine(holder, task_id, token)
        task.runs[token] = (holder, "suspended")
        if self._end_if_cancelled(task):
            return
        task.attempts += 1
        task.steps["wait"] = token
        told = event in self.projects[task.project].events
        self._hand_back(task, self.now if told else NEVER if until is None else until)
        task.lease.expires = None  # type: ignore[union-attr]
        task.awaits = None if told else (event, until)
        self._publish(self._dispatch_own([task], keeps=[task]))

    def step(self, holder: str, task_id: str, token: int, *, name: str) -> None:
        task = self._mine(holder, task_id, token)
        if task.steps.get(name, token) != token:
            raise Refused("DuplicateRow")
        task.steps[name] = token

    def revoke(self, ids: Collection[str]) -> None:
        alive = [self.tasks[id_] for id_ in sorted(ids) if id_ in self.tasks and self.tasks[id_].lease]
        self._cancel_all(alive)
        for task in alive:
            self.marks.pop(task.id, None)
        for id_ in ids:
            if id_ not in self.tasks:
                self.marks.setdefault(id_, self.now)

    def _cancel_all(self, rows: Sequence[Task]) -> None:
        for task in rows:
            lease = self._lease(task.id)
            if lease.holder not in (NOBODY, QUEUE):
                task.runs[lease.token], task.attempts = (lease.holder, "cancelled"), task.attempts + 1
        out, further = self._end(rows, "cancelled")
        self._publish(out)
        self._follow_up(further)
