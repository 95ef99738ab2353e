"""What a store and its flow do, told once more as plainly as can be: dictionaries, whole numbers and one thing at a
time. It knows nothing of SQL, of locks, or of what may go wrong in between. Written from the specification, so that
where it and the databases differ, one of them has not understood it.

An operation returns its answer. One whose outcome the specification leaves open raises ``Ambiguous``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tests.model.plain.state import (
    BY_PAUSE,
    ENDED,
    LIVE,
    NEVER,
    NOBODY,
    QUEUE,
    RETENTION,
    RETRIABLE,
    WINDOW,
    Lease,
    Refused,
    Task,
)
from tests.model.plain.work import Work


@dataclass
class Plain(Work):
    # --- sweepers ----------------------------------------------------------------------------------------------------

    def dispatch(self) -> None:
        due = [
            task for task in self.tasks.values() if task.lease and task.lease.due <= self.now and not task.lease.waits
        ]
        held = [task for task in due if self._lease(task.id).holder != NOBODY]
        waiting = [task for task in due if self._lease(task.id).holder == NOBODY and not self._lease(task.id).paused]
        rows = sorted(held, key=self._due_of) + self._refill(waiting)
        _, out, further = self._lose([task for task in rows if self._lease(task.id).holder not in (NOBODY, QUEUE)])
        rows = [task for task in rows if task.lease]
        wrong: dict[str, str] = {}
        for task in rows:
            if self.projects[task.project].status not in LIVE:
                wrong[task.id] = "cancelled"
            elif (expires := self._lease(task.id).expires) is not None and expires <= self.now:
                wrong[task.id] = "expired"
        more, further_ones = self._end([task for task in rows if task.id in wrong], "", states=wrong)
        parked = [task for task in rows if task.lease and self.projects[task.project].paused]
        free = [task for task in parked if self._lease(task.id).holder != NOBODY]
        for task in free:
            self._hand_back(task, task.came)
        for task in parked:
            self._lease(task.id).paused = BY_PAUSE
        slots = self._give_up(free)
        going = [task for task in rows if task.lease and task not in parked]
        self._publish([*out, *more, *slots, *self._to_queue(self._admit(going)), *self._looked_at()])
        self._follow_up(further)
        self._follow_up(further_ones)

    def _refill(self, waiting: Sequence[Task]) -> list[Task]:
        """The window of each queue, oldest first."""
        rows: list[Task] = []
        for queue in sorted(
            {task.queue for task in waiting}, key=lambda one: min(self._due_of(t) for t in waiting if t.queue == one)
        ):
            here = sorted((task for task in waiting if task.queue == queue), key=self._due_of)
            room = max(0, WINDOW - self._in_broker(queue))
            if room < len(here):
                self._mind_order([self._due_of(task) for task in here])
            rows += here[:room]
        return rows

    def sweep(self) -> None:
        closed = [name for name, project in self.projects.items() if project.status == "closed"]
        self.dispatch()
        for name in closed:
            self._try_complete(name)

    def pay_debts(self) -> list[str]:
        paid = sorted(task.id for task in self.tasks.values() if task.owes)
        for task_id in paid:
            self.tasks[task_id].owes = 0
        return paid

    def prune(self) -> None:
        old = self.now - RETENTION
        for name, project in list(self.projects.items()):
            whole = project.status in ENDED and project.finished is not None and project.finished <= old
            for task in [task for task in self.tasks.values() if task.project == name]:
                of_age = whole or (project.status == "open" and task.finished is not None and task.finished <= old)
                if of_age and task.finished is not None and not task.owes and not self._is_needed(task):
                    self._drop(task)
            left = any(task.project == name for task in self.tasks.values())
            if whole and not left and name != list(self.projects)[-1]:
                del self.projects[name]
        self.marks = {task_id: at for task_id, at in self.marks.items() if at > old}

    def _is_needed(self, task: Task) -> bool:
        return any(task.id in other.after for other in self.tasks.values() if other.lease)

    def _drop(self, task: Task) -> None:
        del self.tasks[task.id]
        for other in self.tasks.values():
            other.after.pop(task.id, None)

    def mend(self) -> None:
        """There is never anything to mend where nothing is done by two at once and nobody is killed."""

    # --- people ------------------------------------------------------------------------------------------------------

    def tell(self, project: str, event: str) -> bool:
        if project not in self.projects:
            raise Refused("ProjectNotFound")
        if self.projects[project].status not in LIVE:
            raise Refused("ProjectClosed")
        if event in self.projects[project].events:
            return False
        self.projects[project].events[event] = self.now
        woken = [
            task for task in self._of(project) if task.awaits and task.awaits[0] == event and self._is_suspended(task)
        ]
        sent = [task for task in woken if self._fits(task.queue)]
        for task in woken:
            self._lease(task.id).due, task.awaits = self.now, None
        self._publish(self._dispatch_own(sent))
        return True

    def _is_suspended(self, task: Task) -> bool:
        assert task.awaits is not None
        until = NEVER if task.awaits[1] is None else task.awaits[1]
        return task.lease is not None and (task.lease.holder, task.lease.due) == (NOBODY, until)

    def pause(self, project: str, *, stop: bool) -> None:
        one = self._known(project)
        if one.status not in LIVE:
            raise Refused("ProjectClosed")
        one.paused = True
        for task in self._of(project):
            lease = self._lease(task.id)
            if lease.holder == QUEUE:
                self._hand_back(task, task.came)
                lease.paused = BY_PAUSE
            if not lease.paused:
                lease.paused = BY_PAUSE
            if stop and lease.holder != NOBODY:
                task.runs[lease.token], task.attempts = (lease.holder, "released"), task.attempts + 1
                self._hand_back(task, task.came)
            if lease.holder == NOBODY and task.has_slots:
                self.to_look_at |= set(task.limits)

    def resume(self, project: str) -> None:
        self._known(project).paused = False
        self._unpark(project)

    def _unpark(self, project: str) -> None:
        for task in self._of(project):
            lease = self._lease(task.id)
            if lease.paused == BY_PAUSE:
                lease.paused = 0
                lease.due = self.now if lease.holder == QUEUE else lease.due

    def close(self, project: str) -> None:
        one = self._known(project)
        one.status = "closed" if one.status == "open" else one.status
        self._try_complete(project)

    def reopen(self, project: str) -> None:
        one = self._known(project)
        if one.status == "cancelled":
            self._cancel_all(self._of(project))
        one.status, one.finished = "open", None

    def cancel(self, project: str) -> list[str]:
        """What runs, and is asked to stop."""
        one = self._known(project)
        if one.status in LIVE:
            one.status, one.finished = "cancelled", self.now
            self._unpark(project)
            for task in self._of(project):
                self._lease(task.id).waits = 0
        if one.status != "cancelled":
            return []
        self._cancel_all([task for task in self._of(project) if self._lease(task.id).holder in (NOBODY, QUEUE)])
        return [task.id for task in self._of(project)]

    def retry_failed(self, project: str) -> list[str]:
        one = self._known(project)
        if one.status == "cancelled":
            raise Refused("ProjectClosed")
        of_it = sorted((task for task in self.tasks.values() if task.project == project), key=lambda task: task.id)
        found = self._alone([task for task in of_it if task.outcome in RETRIABLE and not task.abandoned])
        if not found:
            return []
        if one.status not in LIVE:
            one.status, one.finished = "closed", None
        self._live_again(found)
        self._bring_back(found)
        self.dispatch()
        return [task.id for task in found]

    def _alone(self, found: Sequence[Task]) -> list[Task]:
        """One of a kind."""
        taken = {task.unique for task in self.tasks.values() if task.lease}
        alone = []
        for task in found:
            if task.unique is None or task.unique not in taken:
                alone.append(task)
            taken.add(task.unique)
        return alone

    def _live_again(self, found: Sequence[Task]) -> None:
        for task in found:
            paused = int(self.projects[task.project].paused)
            task.lease = Lease(task.fence + 1, NOBODY, self.now, paused=paused, follows=True)
            task.outcome, task.abandoned, task.losses, task.owes, task.finished = None, False, 0, 0, None
            task.has_slots, task.line = False, None
            self.marks.pop(task.id, None)
        for number, task in enumerate(found):
            task.since = (self.now, number)

    def _bring_back(self, parents: Sequence[Task]) -> None:
        """What was abandoned behind these, unless another failure stands before it."""
        below, frontier = set(), {task.id for task in parents}
        while frontier:
            frontier = {one.id for one in self.tasks.values() if one.abandoned and frontier & set(one.after)} - below
            below |= frontier
        back = {task.id for task in self._alone([self.tasks[id_] for id_ in sorted(below)])}
        while staying := {id_ for id_ in back if self._is_forbidden(self.tasks[id_], back)}:
            back -= staying
        self._live_again([self.tasks[id_] for id_ in sorted(back)])
        for id_ in back:
            after = self.tasks[id_].after
            for parent, (regardless, _) in after.items():
                after[parent] = (regardless, self.tasks[parent].lease is None)
            self._lease(id_).waits = sum(not told for _, told in after.values())

    def _is_forbidden(self, task: Task, back: Collection[str]) -> bool:
        bad = [self.tasks[parent] for parent, (regardless, _) in task.after.items() if not regardless]
        return any(one.outcome not in (None, "succeeded") and one.id not in back for one in bad)
