"""Rows of attempts: one per run, appended when it ends."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import AttemptOutcome
from argus_celery.store.engine import Store
from argus_celery.store.hot import Hot, filled, listed, size
from argus_celery.store.schema import attempts, holders, leases, steps

TAKEN_BACK = "the project was paused"
"""Detail of a run that did not release its claim by itself."""


def append(
    store: Store,
    connection: Connection,
    ids: Collection[str],
    outcome: AttemptOutcome,
    detail: str | None = None,
    *,
    died: bool = False,
) -> None:
    """Append an attempt for each of these leases as it stands; before the lease is changed or deleted.

    ``died``: a lost one's process is known to be gone.
    The worker's node name is copied: its row in ``holders`` is forgotten long before the attempt is.
    """
    if ids:
        values = {"how": outcome, "why": detail, "gone": int(died), **filled("id", ids)}
        _append.run(store, connection, values, size(len(ids)), outcome is AttemptOutcome.LOST)


@Hot
def _append(store: Store, many: int, lost: bool) -> sa.Insert:
    lease = leases.c
    wanted = (lease.task_id, lease.token, lease.holder, lease.started_at, holders.c.node)
    times = (lease.eligible_at, lease.ttl, lease.acquired_at, lease.progress_until, lease.progress_timeout)
    joined = leases.outerjoin(holders, holders.c.id == lease.holder)
    # A subquery, so that each row has one now: a clock that is asked twice may go on in between.
    at = (
        sa.select(*wanted, *times, store.now.label("now"))
        .select_from(joined)
        .where(lease.task_id.in_(listed("id", many, lease.task_id.type)))
        .subquery("ending")
        .c
    )
    seen = _last_seen(at) if lost else sa.null()
    how = (sa.bindparam("how", type_=sa.String()), sa.bindparam("why", type_=sa.Text()))
    gone = sa.bindparam("gone", type_=sa.SmallInteger)
    source = sa.select(at.task_id, at.token, at.holder, at.started_at, at.now, *how, gone, at.node, seen)
    columns = ["task_id", "token", "holder", "started_at", "finished_at", "outcome", "detail", "died"]
    return sa.insert(attempts).from_select([*columns, "node", "seen_at"], source)


def _last_seen(at: Any) -> sa.ColumnElement[int]:
    """The last sign of life: a renewal, a step, progress; or when it happened, as told by who saw it happen."""
    mine = (steps.c.task_id == at.task_id, steps.c.token == at.token)
    step = sa.select(sa.func.max(steps.c.finished_at)).where(*mine).scalar_subquery()
    last = _last_renewed(at)
    for sign in (step, at.progress_until - at.progress_timeout):
        last = sa.case((sa.and_(sign > last, sign < at.now), sign), else_=last)
    return last


def _last_renewed(at: Any) -> sa.ColumnElement[int]:
    """A lease that has lapsed was renewed last a TTL before; one that has not is told lost by who saw it happen.

    One that lapsed for want of progress was renewed up to then.
    """
    renewed = at.eligible_at - at.ttl
    stalled = at.eligible_at == at.progress_until
    return sa.case(
        (at.eligible_at > at.now, at.now),
        (stalled, at.eligible_at),
        (at.acquired_at > renewed, at.acquired_at),
        else_=renewed,
    )


def ended_so(connection: Connection, task_id: str, token: int, outcome: AttemptOutcome) -> bool:
    """Did the run under this token end so?"""
    c = attempts.c
    query = sa.select(c.task_id).where(c.task_id == task_id, c.token == token, c.outcome == outcome)
    return connection.execute(query).first() is not None


def ended_by_themselves(connection: Connection, claims: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
    """Those of these (task, token) runs that have ended and were neither lost, revoked nor taken back."""
    c = attempts.c
    query = sa.select(c.task_id, c.token).where(
        c.task_id.in_([task_id for task_id, _ in claims]),
        sa.tuple_(c.task_id, c.token).in_(list(claims)),
        c.outcome.not_in((AttemptOutcome.LOST, AttemptOutcome.CANCELLED)),
        sa.or_(c.outcome != AttemptOutcome.RELEASED, c.detail.is_(None), c.detail != TAKEN_BACK),
    )
    return {(row.task_id, row.token) for row in connection.execute(query)}
