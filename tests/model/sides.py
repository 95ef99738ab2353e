"""The same operation on a store and on the plain model, and what each of them then looks like, in the same words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.errors import ArgusError
from argus_celery.flow import deliver, dispatch, mend, prune, release, renew, restore, revive, revoke, steer, step, tell
from argus_celery.flow.claim import claim
from argus_celery.flow.complete import complete
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.lapse import lapse
from argus_celery.flow.retry import retry
from argus_celery.flow.suspend import Wait, suspend
from argus_celery.records import Bound, Claim, Delivery, Outcome, TaskState
from argus_celery.store import schema
from argus_celery.store.limits import ADMITTED, WAITING
from argus_celery.store.pruning import Ages
from tests.model.plain.plain import Plain
from tests.model.plain.state import RETENTION, SLOTS, WINDOW, Refused
from tests.model.worlds import World
from tests.store.bench import new_task

Snapshot = dict[str, Any]

AS_USUAL = revive.Knowledge(lambda name: None, lambda message: ())


class Side:
    """A store, asked as the model is."""

    def __init__(self, url: str) -> None:
        self.world = World(url, window=WINDOW)
        self.rt = self.world.rt

    def begin(self, broker: str | None = None) -> None:
        self.world.pass_time(1)
        self.world.fortune()
        self.world.process(unlucky=False)
        if broker:
            setattr(self.world.broker, broker, True)

    # --- operations ------------------------------------------------------------------------------------------------

    def pass_time(self, milliseconds: int) -> None:
        self.world.pass_time(milliseconds)

    def enqueue(self, task_id: str, project: str, queue: str, **more: Any) -> Any:
        bounds = tuple(Bound(name, concurrency=SLOTS[name]) for name in more.pop("limits"))
        named = {"delay": "delay_ms", "expires": "expires_in_ms"}
        options = {named.get(name, name): value for name, value in more.items()}
        task = new_task(id=task_id, body=task_id.encode(), project=project, queue=queue, limits=bounds, **options)
        (enqueued,) = enqueue(self.rt, [task])
        return enqueued.task_id, enqueued.created

    def claim(self, holder: str, task_id: str, token: int) -> int | None:
        (granted,) = claim(self.rt, holder, [Delivery(task_id, token)])
        if granted is None:
            revoke.meet(self.rt, [Delivery(task_id, token)])
        return None if granted is None else granted.token

    def renew(self, holder: str, claims: Sequence[tuple[str, int]]) -> Any:
        renewal = renew.renew(self.rt, holder, claims)
        return sorted(renewal.held), sorted(renewal.lost)

    def complete(self, *held: Any, failed: bool, children: Sequence[str], owed: bool) -> None:
        one = self._claim(*held)
        more = {"project_id": one.project_id, "inside": True, "parent_id": one.task_id}
        new = tuple(new_task(id=child, body=child.encode(), **more) for child in children)
        state = TaskState.FAILED if failed else TaskState.SUCCEEDED
        complete(self.rt, one, Outcome(state, b"r", undelivered=owed, continuations=new))

    def retry(self, *held: Any, body: str, delay: int, queue: str) -> None:
        again = new_task(id=held[1], body=body.encode(), queue=queue, delay_ms=delay)
        retry(self.rt, self._claim(*held), again, "once more")

    def release(self, holder: str, task_id: str, token: int, *, delay: int) -> bool:
        return bool(release.release(self.rt, holder, [(task_id, token)], "shutdown", delay))

    def lapse(self, holder: str, task_id: str, token: int) -> str | None:
        return lapse(self.rt, holder, task_id, token, "signal 9")

    def wait(self, *held: Any, event: str | None, until: int | None) -> None:
        instant = None if until is None else self.world.store.began + until
        suspend(self.rt, self._claim(*held), Wait("wait", event, until=instant))

    def step(self, *held: Any, name: str) -> None:
        step.record(self.rt, self._claim(*held), name, b"v")

    def dispatch(self) -> None:
        dispatch.dispatch(self.rt)

    def sweep(self) -> None:
        restore.sweep(self.rt)

    def mend(self) -> None:
        assert not mend.mend(self.rt), "there was something to mend"

    def pay_debts(self) -> list[str]:
        debts = deliver.pending(self.rt)
        assert all(deliver.done(self.rt, debt.task_id, debt.token) for debt in debts)
        return sorted(debt.task_id for debt in debts)

    def prune(self) -> None:
        prune.Pruning(self.rt, lambda: Ages(RETENTION, RETENTION)).run_once()

    def tell(self, project: str, event: str) -> bool:
        return tell.tell(self.rt, project, event, b"payload")

    def pause(self, project: str, *, stop: bool) -> None:
        steer.pause(self.rt, project, stop=stop)

    def resume(self, project: str) -> None:
        steer.resume(self.rt, project)

    def close(self, project: str) -> None:
        steer.close(self.rt, project)

    def reopen(self, project: str) -> None:
        steer.reopen(self.rt, project)

    def cancel(self, project: str) -> list[str]:
        return sorted(task_id for task_id, _, _ in steer.cancel(self.rt, project))

    def revoke(self, ids: Sequence[str]) -> None:
        revoke.revoke(self.rt, ids)

    def retry_failed(self, project: str) -> list[str]:
        return revive.retry_failed(self.rt, project, AS_USUAL)

    def _claim(self, holder: str, task_id: str, token: int) -> Claim:
        row = self.world.row(task_id, schema.tasks)
        return Claim(task_id, token, holder, row.project_id if row else 0, 6_000, 0.0)

    # --- what it looks like ----------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        return self.world.store.read(self._read)

    def _read(self, connection: Connection) -> Snapshot:
        def rows(table: sa.Table) -> list[Any]:
            return list(connection.execute(sa.select(table)))

        names = {row.id: row.name for row in rows(schema.projects)}
        lines = rows(schema.lease_limits)
        return {
            "projects": {row.name: (row.status, row.paused_at is not None) for row in rows(schema.projects)},
            "tasks": {
                row.id: (
                    names[row.project_id], row.queue, bytes(row.body).decode(), row.outcome, row.fence, row.abandoned,
                )
                for row in rows(schema.tasks)
            },
            "counts": {row.id: (row.attempts, row.losses, row.retries, row.undelivered) for row in rows(schema.tasks)},
            "leases": {
                row.task_id: (row.token, row.holder, row.waits, row.paused, row.dispatches, row.follows)
                for row in rows(schema.leases)
            },
            "due": {
                row.task_id: (self._since(row.eligible_at), self._since(row.expires_at))
                for row in rows(schema.leases)
            },
            "runs": {(row.task_id, row.token): (row.holder, row.outcome) for row in rows(schema.attempts)},
            "steps": {(row.task_id, row.name): row.token for row in rows(schema.steps)},
            "after": {
                (row.child_id, row.parent_id): (bool(row.regardless), bool(row.met)) for row in rows(schema.edges)
            },
            "events": {(names[row.project_id], row.name) for row in rows(schema.events) if row.sent_at is not None},
            "lines": {row.task_id: row.name for row in lines if row.state == WAITING},
            "slots": {row.task_id for row in lines if row.state == ADMITTED},
            "marks": {row.value for row in rows(schema.revoked)},
            "sent": sorted((one.task_id, one.token, one.message.body.decode()) for one in self.world.broker.ever),
        }  # fmt: skip

    def _since(self, instant: int | None) -> int | None:
        """Relative to the beginning, but for what is no time at all."""
        return instant if instant is None or instant > 2**50 else instant - self.world.store.began


def answer(side: Side | Plain, name: str, args: Sequence[Any], more: dict[str, Any]) -> Any:
    """What it says; of an error its name."""
    try:
        return getattr(side, name)(*args, **more)
    except Refused as refused:
        return str(refused)
    except ArgusError as error:
        return type(error).__name__


def plain_snapshot(plain: Plain) -> Snapshot:
    tasks = plain.tasks.values()
    alive = {task.id: task.lease for task in tasks if task.lease is not None}
    limited = [task for task in tasks if task.lease is not None and task.limits]
    return {
        "projects": {name: (one.status, one.paused) for name, one in plain.projects.items()},
        "tasks": {t.id: (t.project, t.queue, t.body, t.outcome, t.fence, int(t.abandoned)) for t in tasks},
        "counts": {t.id: (t.attempts, t.losses, t.retries, t.owes) for t in tasks},
        "leases": {
            id_: (x.token, x.holder, x.waits, x.paused, x.dispatches, int(x.follows)) for id_, x in alive.items()
        },
        "due": {id_: (lease.due, lease.expires) for id_, lease in alive.items()},
        "runs": {(task.id, token): run for task in tasks for token, run in task.runs.items()},
        "steps": {(task.id, name): token for task in tasks for name, token in task.steps.items()},
        "after": {(task.id, parent): edge for task in tasks for parent, edge in task.after.items()},
        "events": {(name, event) for name, one in plain.projects.items() for event in one.events},
        "lines": {task.id: task.line for task in limited if task.line is not None},
        "slots": {task.id for task in limited if task.has_slots},
        "marks": set(plain.marks),
        "sent": sorted(plain.sent),
    }
