"""The end of a plain run in one statement, where the database writes several tables in one.

A run is plain if nothing waits for it: no limit, nothing that comes after it, no project that reacts to a failure. What
is not, or is not held any more, matches nothing, and is left to the transaction that looks.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import AttemptOutcome, Claim, Outcome, TaskState
from argus_celery.store import ended
from argus_celery.store.engine import Store
from argus_celery.store.hot import Hot
from argus_celery.store.leases import is_claimed_by
from argus_celery.store.schema import attempts, holders, leases, projects, tasks


def finish(store: Store, connection: Connection, claim: Claim, outcome: Outcome) -> bool | None:
    """Delete the lease, append the attempt and write the outcome. None: nothing was written.

    Else, does a process wait for ends, and is to be told of this one?
    """
    values = {"mine": claim.task_id, "under": claim.token, "me": claim.holder}
    values |= {"value": outcome.result, "why": outcome.error, "owed": int(outcome.undelivered)}
    rows = _finish.rows(store, connection, values, outcome.state)
    return bool(rows[0][0]) if rows else None


@Hot
def _finish(store: Store, state: TaskState) -> sa.Select[Any]:
    failed, lease, now = state is TaskState.FAILED, leases.c, store.now
    claim = is_claimed_by(sa.bindparam("mine"), sa.bindparam("under"), sa.bindparam("me"))
    reacts = sa.select(sa.literal(1)).where(projects.c.id == lease.project_id, projects.c.policy.is_not(None))
    plain = (lease.leads == 0, lease.limited == 0, *([reacts.scalar_subquery().is_(None)] if failed else []))
    deleted = sa.delete(leases).where(*claim, *plain)
    gone = deleted.returning(lease.task_id, lease.token, lease.holder, lease.started_at).cte("gone")
    why = sa.bindparam("why", type_=sa.Text())
    how = AttemptOutcome.FAILED if failed else AttemptOutcome.SUCCEEDED
    node = sa.select(holders.c.node).where(holders.c.id == gone.c.holder).scalar_subquery()
    columns = ["task_id", "token", "holder", "started_at", "finished_at", "outcome", "detail", "node"]
    run = sa.select(*gone.c, now, sa.literal(str(how)), why, node)
    appended = sa.insert(attempts).from_select(columns, run).cte("appended")
    end = {
        tasks.c.outcome: str(state),
        tasks.c.fence: gone.c.token,
        tasks.c.finished_at: now,
        tasks.c.result: sa.bindparam("value", type_=sa.LargeBinary),
        tasks.c.meta: None,
        tasks.c.error: why,
        tasks.c.undelivered: sa.bindparam("owed", type_=sa.SmallInteger),
        tasks.c.abandoned: 0,
        tasks.c.attempts: tasks.c.attempts + 1,
    }
    written = sa.update(tasks).where(tasks.c.id == gone.c.task_id).values(end).cte("written")
    return sa.select(ended.awaited()).select_from(gone).add_cte(appended, written)
