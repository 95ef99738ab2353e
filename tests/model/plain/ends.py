"""An end and what it lets go, and what goes out for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tests.model.plain.slots import Slots
from tests.model.plain.state import LIVE, MAX_LOSSES, PAUSE_AFTER_FAILURE, WINDOW, Task


class Ends(Slots):
    def _end(
        self, ended: Sequence[Task], state: str, *, ran: bool = False, owes: int = 0,
        states: dict[str, str] | None = None,
    ) -> tuple[list[Task], list[str]]:  # fmt: skip
        """What goes out instead, and the ended tasks whose children are told of an end next."""
        for task in ended:
            lease = self._lease(task.id)
            task.outcome, task.fence, task.finished = (states or {}).get(task.id, state), lease.token, self.now
            if ran:
                task.runs.setdefault(lease.token, (lease.holder, task.outcome))
                task.attempts += 1
            task.owes = owes or (2 if lease.follows and not ran else 0)
            task.lease = task.awaits = None
        out, further = self._wake([task.id for task in ended])
        return [*out, *self._give_up(ended)], further

    def _end_if_cancelled(self, task: Task) -> bool:
        """A run that would go on, whose project was cancelled meanwhile."""
        if self.projects[task.project].status in LIVE:
            return False
        task.attempts += 1
        out, further = self._end([task], "cancelled")
        self._publish(out)
        self._follow_up(further)
        return True

    def _lose(self, rows: Sequence[Task]) -> tuple[list[Task], list[Task], list[str]]:
        """Runs whose holder is gone: those that were lost too often are dead."""
        for task in rows:
            lease = self._lease(task.id)
            task.runs[lease.token] = (lease.holder, "lost")
            task.attempts, task.losses = task.attempts + 1, task.losses + 1
        dead = [task for task in rows if task.losses >= MAX_LOSSES]
        out, further = self._end(dead, "dead", owes=2)
        return dead, out, further

    def _wake(self, parents: Collection[str]) -> tuple[list[Task], list[str]]:
        """Tell what comes after these ended tasks; what never runs ends, and its children are told next."""
        told: dict[str, list[str]] = {}
        for task in self.tasks.values():
            told[task.id] = [one for one in task.after if one in parents and not task.after[one][1]]
        children = sorted(task_id for task_id, met in told.items() if met)
        never: list[Task] = []
        going: list[Task] = []
        for child in (self.tasks[id_] for id_ in children):
            forbids = False
            for parent in told[child.id]:
                regardless, _ = child.after[parent]
                child.after[parent] = (regardless, True)
                forbids |= not regardless and self.tasks[parent].outcome != "succeeded"
            if child.lease is None:
                continue
            if forbids and self.projects[child.project].status in LIVE:
                never.append(child)
                continue
            going.append(child)
        free = [child for child in going if self._lease(child.id).waits <= len(told[child.id])]
        sent = [child for child in free if self._fits(child.queue)]
        for child in going:
            lease = self._lease(child.id)
            lease.waits = max(0, lease.waits - len(told[child.id]))
        out = self._dispatch_own(sent)
        return [*out, *self._abandon(never)], [child.id for child in never]

    def _abandon(self, never: Sequence[Task]) -> list[Task]:
        """Their own children are told by ``_follow_up``."""
        for task in never:
            lease = self._lease(task.id)
            task.outcome, task.fence, task.finished, task.abandoned = "failed", lease.token, self.now, True
            task.owes = 2 if lease.follows else 0
            task.lease = task.awaits = None
        return self._give_up(never)

    def _follow_up(self, left: Sequence[str]) -> None:
        todo = set(left)
        while todo:
            out, further = self._wake(sorted(todo))
            self._publish(out)
            todo = set(further)

    def _try_complete(self, name: str) -> None:
        project, of_it = self.projects[name], [task for task in self.tasks.values() if task.project == name]
        owes = any(task.owes == 2 for task in of_it)
        if project.status == "closed" and not owes and not any(task.lease for task in of_it):
            bad = any(task.outcome in ("failed", "dead") for task in of_it)
            project.status, project.finished = "failed" if bad else "completed", self.now

    # --- handing out -----------------------------------------------------------------------------------------------

    def _fits(self, queue: str) -> bool:
        """Is the window free, and does nothing older wait?"""
        if queue not in self.room:
            waits = [
                task for task in self.tasks.values() if task.lease and task.queue == queue and self._waits(task.lease)
            ]
            self.room[queue] = 0 if waits else WINDOW - self._in_broker(queue)
        free = self.room[queue]
        self.room[queue] = max(free - 1, 0)
        return free > 0

    def _dispatch_own(self, rows: Sequence[Task], keeps: Sequence[Task] = ()) -> list[Task]:
        """Those that may go now; ``keeps``: they had slots, which are given up if they do not."""
        going = [task for task in rows if task.lease and self._waits(task.lease) and self._goes_on(task)]
        slots = [task for task in keeps if task.limits and task not in going]
        out = self._to_queue(self._admit(going, keeps=any(task.limits for task in keeps)))
        return [*out, *self._give_up(slots)]

    def _goes_on(self, task: Task) -> bool:
        project, expires = self.projects[task.project], self._lease(task.id).expires
        return project.status in LIVE and not project.paused and (expires is None or expires > self.now)

    def _publish(self, rows: Sequence[Task]) -> None:
        for task in rows:
            lease = self._lease(task.id)
            if self.broker == "refuses":
                self._hand_back(task, self.now + PAUSE_AFTER_FAILURE)
            else:
                self.sent.append((task.id, lease.token, task.body))
