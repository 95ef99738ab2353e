"""Rows of chords and of their parts: how many of a header's tasks have ended, and what each came to.

The row of a chord is raised before its part is inserted, so that of two last parts the second sees the first; the
part's primary key counts each task once. Both are written by the transaction that ends the task, where there is one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.records import ChordPart, NewChord, OwedChord, PartCount
from argus_celery.store.engine import Store
from argus_celery.store.schema import chord_parts, chords, tasks

c, p = chords.c, chord_parts.c

OWED, SENDING = 1, 2
"""``owed``: nothing has come of the full chord yet; all is recorded, and ordinary tasks are being sent."""
SENDING_MS = 30_000
"""After which whoever was sending them is taken for dead."""


def insert(store: Store, connection: Connection, new: Sequence[NewChord]) -> None:
    """Record chords before their headers; one that is known stands."""
    known = set(connection.execute(sa.select(c.id).where(c.id.in_([chord.id for chord in new]))).scalars())
    rows = [_row(chord) for chord in new if chord.id not in known]
    if rows:
        connection.execute(sa.insert(chords).values(created_at=store.now), rows)


def forget_sent(connection: Connection, chord_id: str) -> None:
    """The same chord is called once more, by its ids: if it was sent and its tasks run again, it begins anew.

    Durable tasks do not: their ids name tasks that are done.
    """
    sent = sa.select(c.id).where(c.id == chord_id, c.sent_at.is_not(None))
    durable = sa.select(tasks.c.id).where(tasks.c.id == p.task_id, tasks.c.queue != "", p.chord_id == chord_id)
    if connection.execute(sent).first() is not None and connection.execute(durable.limit(1)).first() is None:
        connection.execute(sa.delete(chord_parts).where(p.chord_id == chord_id))
        connection.execute(sa.delete(chords).where(c.id == chord_id))


def _row(chord: NewChord) -> dict[str, Any]:
    return {
        "id": chord.id,
        "project_id": chord.project_id,
        "size": chord.size,
        "done": chord.done,
        "owed": 0,
        "body": chord.body,
        "structure": chord.structure,
    }


def resize(store: Store, connection: Connection, chord_id: str, size: int) -> PartCount:
    """The header was sent whole: so many parts will come, or have come already."""
    ready = sa.and_(c.sent_at.is_(None), c.done >= size)
    statement = sa.update(chords).where(c.id == chord_id).values(size=size, owed=sa.case((ready, OWED), else_=c.owed))
    return _answer(store, connection, chord_id, statement)


def add(connection: Connection, chord_id: str) -> bool:
    """One part more will come; False if there is no such chord. Its size may not be known yet: ``done`` is lowered."""
    return connection.execute(sa.update(chords).where(c.id == chord_id).values(done=c.done - 1)).rowcount > 0


def is_known(connection: Connection, chord_id: str) -> bool:
    return connection.execute(sa.select(c.id).where(c.id == chord_id)).first() is not None


def count(
    store: Store, connection: Connection, part: ChordPart, project_id: int | None, *, completing: bool = False
) -> PartCount:
    """Count a part once. ``DuplicateRow`` if a rival counts the same one: to be repeated.

    The word of a ``completing`` run stands above what was told in its stead, when it had failed or could not come.
    """
    counted = sa.exists().where(p.chord_id == part.chord_id, p.task_id == part.task_id)
    ready = sa.and_(c.sent_at.is_(None), c.done + 1 >= c.size)
    statement = (
        sa.update(chords)
        .where(c.id == part.chord_id, ~counted)
        # In this order: MySQL assigns from left to right.
        .ordered_values(
            (c.owed, sa.case((ready, OWED), else_=c.owed)),
            (c.project_id, sa.func.coalesce(c.project_id, sa.literal(project_id, sa.BigInteger))),
            (c.done, c.done + 1),
        )
    )
    answer = _raised(store, connection, part.chord_id, statement)
    if answer is None:
        if completing:
            _correct(connection, part)
        return _standing(connection, part.chord_id)
    connection.execute(sa.insert(chord_parts).values(_part_row(part)))
    return answer


def _correct(connection: Connection, part: ChordPart) -> None:
    """The chord is fired once more, if all its parts are in."""
    mine = (p.chord_id == part.chord_id, p.task_id == part.task_id, p.state != part.state)
    again = {"owed": sa.case((c.done >= c.size, OWED), else_=0), "sent_at": None}
    stale = sa.update(chords).where(c.id == part.chord_id, sa.exists().where(*mine)).values(again)
    if connection.execute(stale).rowcount > 0:
        connection.execute(sa.update(chord_parts).where(*mine).values(_part_row(part)))


def _answer(store: Store, connection: Connection, chord_id: str, statement: sa.Update) -> PartCount:
    return _raised(store, connection, chord_id, statement) or PartCount.UNKNOWN


def _raised(store: Store, connection: Connection, chord_id: str, statement: sa.Update) -> PartCount | None:
    if store.dialect.returning:
        row = connection.execute(statement.returning(c.owed)).first()
        return None if row is None else _told(row.owed)
    if connection.execute(statement).rowcount == 0:
        return None
    return _standing(connection, chord_id)


def _standing(connection: Connection, chord_id: str) -> PartCount:
    row = connection.execute(sa.select(c.owed).where(c.id == chord_id)).first()
    return PartCount.UNKNOWN if row is None else _told(row.owed)


def _told(owed: int) -> PartCount:
    return PartCount.READY if owed == OWED else PartCount.COUNTED


def _part_row(part: ChordPart) -> dict[str, Any]:
    return {
        "chord_id": part.chord_id,
        "task_id": part.task_id,
        "position": part.position,
        "state": part.state,
        "result": part.result,
    }


def ready_of(connection: Connection, ids: Collection[str]) -> set[str]:
    """Those of these chords that are owed their body."""
    return set(connection.execute(sa.select(c.id).where(c.id.in_(ids), c.owed == OWED)).scalars())


def owed(store: Store, connection: Connection, limit: int) -> list[str]:
    """Chords whose parts are all in and of which nothing has come yet."""
    return list(connection.execute(sa.select(c.id).where(*_is_owed(store)).order_by(c.id).limit(limit)).scalars())


def _is_owed(store: Store) -> tuple[sa.ColumnElement[bool], ...]:
    """Also one whose ordinary tasks should have been sent by now."""
    return (c.owed > 0, sa.or_(c.owed == OWED, c.sent_at <= store.now - SENDING_MS))


def read_owed(store: Store, connection: Connection, chord_id: str) -> OwedChord | None:
    """A chord that is owed its body, with the parts in order; None if it is not (any more)."""
    columns = (c.id, c.project_id, c.body, c.structure, c.owed)
    row = connection.execute(sa.select(*columns).where(c.id == chord_id, *_is_owed(store))).first()
    if row is None:
        return None
    structure = None if row.structure is None else bytes(row.structure)
    parts = tuple(_parts(connection, chord_id))
    turn = _turn(connection, chord_id)
    return OwedChord(row.id, row.project_id, bytes(row.body), structure, parts, turn, recorded=row.owed == SENDING)


def _turn(connection: Connection, chord_id: str) -> int:
    """Of ordinary tasks the store knows no end: their chord is made anew when it is called once more."""
    ended = sa.select(sa.func.max(tasks.c.finished_at)).where(tasks.c.id == p.task_id, p.chord_id == chord_id)
    made = sa.select(c.created_at).where(c.id == chord_id)
    return int(connection.execute(ended).scalar() or connection.execute(made).scalar_one())


def _parts(connection: Connection, chord_id: str) -> list[ChordPart]:
    """In order; a part that has no position comes last."""
    rows = connection.execute(sa.select(chord_parts).where(p.chord_id == chord_id).order_by(p.position, p.task_id))
    parts = [ChordPart(r.chord_id, r.task_id, r.position, r.state, bytes(r.result)) for r in rows]
    return sorted(parts, key=lambda part: part.position is None)


def settle(store: Store, connection: Connection, chord_id: str, *, sends: bool) -> bool:
    """What was owed is about to be recorded in this transaction; False if another was first.

    ``sends``: ordinary tasks are sent after it, and until ``sent`` is called that is still owed.
    """
    values = {"owed": SENDING if sends else 0, "sent_at": store.now}
    return connection.execute(sa.update(chords).where(c.id == chord_id, *_is_owed(store)).values(values)).rowcount > 0


def sent(connection: Connection, chord_id: str) -> None:
    connection.execute(sa.update(chords).where(c.id == chord_id, c.owed == SENDING).values(owed=0))


def take_back(store: Store, connection: Connection, task_ids: Collection[str]) -> list[str]:
    """These tasks will end once more: uncount their parts, and let their chords be fired again. Returns the chords."""
    query = sa.select(p.chord_id, p.task_id).where(p.task_id.in_(task_ids))
    taken: dict[str, list[str]] = {}
    for row in connection.execute(query):
        taken.setdefault(row.chord_id, []).append(row.task_id)
    for chord_id in sorted(taken):
        connection.execute(store.dialect.for_update(sa.select(c.id).where(c.id == chord_id)))
        mine = (p.chord_id == chord_id, p.task_id.in_(taken[chord_id]))
        gone = connection.execute(sa.delete(chord_parts).where(*mine)).rowcount
        connection.execute(sa.update(chords).where(c.id == chord_id).values(done=c.done - gone, owed=0, sent_at=None))
    return sorted(taken)
