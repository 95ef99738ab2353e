"""The tables. The wide task row is written at enqueue and at the end; the narrow lease row takes the traffic between.

A task that has not ended has exactly one lease row, and one that has ended has none:
the scheduler scans live work only.
All times are milliseconds of the database's clock.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

metadata = sa.MetaData()

Big = sa.BigInteger().with_variant(sa.Integer, "sqlite")
# Ids and names are compared byte by byte, as every other database does.
_EXACT = "utf8mb4_bin"
LongText = sa.Text().with_variant(mysql.LONGTEXT(collation=_EXACT), "mysql", "mariadb")
LongBytes = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")


def _name(length: int) -> sa.String:
    return sa.String(length).with_variant(
        mysql.VARCHAR(length, charset="utf8mb4", collation=_EXACT), "mysql", "mariadb"
    )


_ENGINE: Any = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}

about = sa.Table(
    "argus_about",
    metadata,
    sa.Column("name", _name(64), primary_key=True),
    sa.Column("value", _name(255), nullable=False),
    **_ENGINE,
)

projects = sa.Table(
    "argus_projects",
    metadata,
    sa.Column("id", Big, primary_key=True, autoincrement=True),
    sa.Column("name", _name(255), nullable=False, unique=True),
    sa.Column("status", _name(16), nullable=False),
    sa.Column("paused_at", sa.BigInteger),
    sa.Column("priority", sa.Integer, nullable=False, server_default="0"),
    sa.Column("meta", LongText),
    sa.Column("policy", LongText),
    # its share of a queue beside other projects
    sa.Column("weight", sa.Integer, nullable=False, server_default="1"),
    sa.Column("deadline_at", sa.BigInteger),
    # its tasks are under the limit of its own name
    sa.Column("limited", sa.SmallInteger, nullable=False, server_default="0"),
    # why it was cancelled or paused
    sa.Column("reason", LongText),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("closed_at", sa.BigInteger),
    sa.Column("finished_at", sa.BigInteger),
    sa.Index("argus_projects_status", "status"),
    # live projects whose deadline is over
    sa.Index(
        "argus_projects_deadline",
        "status",
        "deadline_at",
        postgresql_where=sa.text("deadline_at IS NOT NULL"),
        sqlite_where=sa.text("deadline_at IS NOT NULL"),
    ),
    **_ENGINE,
)

tasks = sa.Table(
    "argus_tasks",
    metadata,
    sa.Column("id", _name(255), primary_key=True),
    sa.Column("project_id", sa.BigInteger, nullable=False),
    sa.Column("name", _name(255), nullable=False),
    sa.Column("key", _name(255)),
    sa.Column("queue", _name(255), nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    # NULL while the task lives: its lease row tells waiting, queued and running apart
    sa.Column("outcome", _name(16)),
    # the wire message: everything but the body as JSON, then the body's bytes
    sa.Column("message", LongText, nullable=False),
    sa.Column("body", LongBytes, nullable=False),
    sa.Column("max_losses", sa.Integer, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("losses", sa.Integer, nullable=False, server_default="0"),
    sa.Column("retries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("result", LongBytes),
    sa.Column("error", LongText),
    sa.Column("parent_id", _name(255)),
    sa.Column("root_id", _name(255)),
    sa.Column("group_id", _name(255)),
    sa.Column("fence", sa.BigInteger, nullable=False, server_default="0"),
    # it never ran: what it waited for failed, and it goes on if that is retried
    sa.Column("abandoned", sa.SmallInteger, nullable=False, server_default="0"),
    # the document of update_state, while the task lives
    sa.Column("meta", LongBytes),
    sa.Column("undelivered", sa.SmallInteger, nullable=False, server_default="0"),
    # what it is to be again if it is put back: one of its kind, and under limits (JSON)
    sa.Column("unique_key", _name(64)),
    sa.Column("limits", LongText),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    # its place among those that were recorded with it, in one millisecond
    sa.Column("number", sa.Integer, nullable=False, server_default="0"),
    sa.Column("finished_at", sa.BigInteger),
    sa.UniqueConstraint("project_id", "key", name="argus_tasks_key"),
    sa.Index("argus_tasks_outcome", "project_id", "outcome"),
    # By age in each project, for pruning. Partial where the database has it: enqueue pays nothing for it.
    sa.Index(
        "argus_tasks_ended",
        "project_id",
        "finished_at",
        postgresql_where=sa.text("finished_at IS NOT NULL"),
        sqlite_where=sa.text("finished_at IS NOT NULL"),
    ),
    # Partial where the database has it: it holds the few debts, not the millions that owe nothing.
    sa.Index(
        "argus_tasks_undelivered",
        "undelivered",
        postgresql_where=sa.text("undelivered > 0"),
        sqlite_where=sa.text("undelivered > 0"),
    ),
    **_ENGINE,
)

leases = sa.Table(
    "argus_leases",
    metadata,
    sa.Column("task_id", _name(255), primary_key=True),
    sa.Column("project_id", sa.BigInteger, nullable=False),
    sa.Column("queue", _name(255), nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("holder", _name(64), nullable=False),
    sa.Column("claim", _name(32)),
    sa.Column("eligible_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger),
    sa.Column("ttl", sa.BigInteger, nullable=False),
    sa.Column("waits", sa.Integer, nullable=False),
    # parked: 1 by its project's pause, 2 by a limit that is full
    sa.Column("paused", sa.SmallInteger, nullable=False),
    sa.Column("acquired_at", sa.BigInteger),
    sa.Column("started_at", sa.BigInteger),
    sa.Column("dispatches", sa.Integer, nullable=False),
    # the message has a chain or a chord behind it, which are to be told of an end without a run
    sa.Column("follows", sa.SmallInteger, nullable=False, server_default="0"),
    # others come after it, and are to be told of its end
    sa.Column("leads", sa.SmallInteger, nullable=False, server_default="0"),
    # since when only workers without the task's code were met
    sa.Column("unknown_since", sa.BigInteger),
    # it is renewed no further than this, unless the run shows progress; and how long it has for that
    sa.Column("progress_until", sa.BigInteger),
    sa.Column("progress_timeout", sa.BigInteger),
    # only one task that bears it is alive
    sa.Column("unique_key", _name(64)),
    # it is in argus_lease_limits
    sa.Column("limited", sa.SmallInteger, nullable=False, server_default="0"),
    # Every scheduler question is a prefix of this one: rows of a holder, and due rows of a queue in order.
    sa.Index("argus_leases_due", "holder", "paused", "waits", "queue", "priority", "eligible_at"),
    sa.Index("argus_leases_project", "project_id", "paused"),
    # Which projects wait in a queue. Where indexes can be partial, what goes out at once is never in it.
    sa.Index(
        "argus_leases_share",
        "holder",
        "paused",
        "waits",
        "queue",
        "priority",
        "project_id",
        "eligible_at",
        postgresql_where=sa.text("holder = ''"),
        sqlite_where=sa.text("holder = ''"),
    ),
    sa.Index(
        "argus_leases_unique",
        "unique_key",
        unique=True,
        postgresql_where=sa.text("unique_key IS NOT NULL"),
        sqlite_where=sa.text("unique_key IS NOT NULL"),
    ),
    **_ENGINE,
)


def waiting_for_nothing() -> tuple[sa.ColumnElement[bool], ...]:
    """Nobody holds the row and nothing parks it. Written out: a partial index is found by what a statement says."""
    return (leases.c.holder == sa.literal_column("''"), leases.c.paused == 0, leases.c.waits == 0)


# Every (queue, priority) that was ever used: the scheduler asks each for its first row.
queues = sa.Table(
    "argus_queues",
    metadata,
    sa.Column("queue", _name(255), primary_key=True),
    sa.Column("priority", sa.Integer, primary_key=True, autoincrement=False),
    **_ENGINE,
)

attempts = sa.Table(
    "argus_attempts",
    metadata,
    sa.Column("task_id", _name(255), primary_key=True),
    sa.Column("token", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("holder", _name(64), nullable=False),
    sa.Column("started_at", sa.BigInteger),
    sa.Column("finished_at", sa.BigInteger, nullable=False),
    sa.Column("outcome", _name(16), nullable=False),
    sa.Column("detail", LongText),
    # the worker's name, which outlives its row in holders; and until when a lost run is known to have been held
    sa.Column("node", _name(255)),
    sa.Column("seen_at", sa.BigInteger),
    # it was lost because its process is known to have died
    sa.Column("died", sa.SmallInteger, nullable=False, server_default="0"),
    **_ENGINE,
)

steps = sa.Table(
    "argus_steps",
    metadata,
    sa.Column("task_id", _name(255), primary_key=True),
    sa.Column("name", _name(255), primary_key=True),
    sa.Column("value", LongBytes),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("finished_at", sa.BigInteger, nullable=False),
    **_ENGINE,
)

holders = sa.Table(
    "argus_holders",
    metadata,
    sa.Column("id", _name(64), primary_key=True),
    sa.Column("node", _name(255), nullable=False),
    sa.Column("host", _name(255), nullable=False),
    sa.Column("pid", sa.BigInteger, nullable=False),
    sa.Column("boot_id", _name(64), nullable=False),
    sa.Column("pid_namespace", _name(64), nullable=False),
    sa.Column("process_start", _name(64), nullable=False),
    sa.Column("started_at", sa.BigInteger, nullable=False),
    sa.Column("seen_at", sa.BigInteger, nullable=False),
    # how far its host's clock was ahead of the database's
    sa.Column("skew_ms", sa.BigInteger),
    # when it was stopped, and said so
    sa.Column("left_at", sa.BigInteger),
    **_ENGINE,
)

# One row per chord, under the id of its header group; it stays when the body was sent, so that a late copy of a part
# is counted nowhere.
chords = sa.Table(
    "argus_chords",
    metadata,
    sa.Column("id", _name(255), primary_key=True),
    # the body's: where the chord was made, or that of its first part. Not done while the chord is owed
    sa.Column("project_id", sa.BigInteger),
    # NULL until the header was sent whole; a part added later lowers done instead
    sa.Column("size", sa.Integer),
    sa.Column("done", sa.Integer, nullable=False),
    # while all parts are in and nothing has come of it yet: store/chords.py
    sa.Column("owed", sa.SmallInteger, nullable=False),
    # the body's signature and the shape of a nested header, as kombu serialised them
    sa.Column("body", LongBytes),
    sa.Column("structure", LongBytes),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("sent_at", sa.BigInteger),
    sa.Index(
        "argus_chords_owed",
        "owed",
        postgresql_where=sa.text("owed > 0"),
        sqlite_where=sa.text("owed > 0"),
    ),
    **_ENGINE,
)

chord_parts = sa.Table(
    "argus_chord_parts",
    metadata,
    sa.Column("chord_id", _name(255), primary_key=True),
    sa.Column("task_id", _name(255), primary_key=True),
    sa.Column("position", sa.Integer),
    sa.Column("state", _name(16), nullable=False),
    sa.Column("result", LongBytes),
    sa.Index("argus_chord_parts_task", "task_id"),
    **_ENGINE,
)

# A revoked task id (kind '') that has no live task yet, or a revoked stamp (kind: the header's name).
revoked = sa.Table(
    "argus_revoked",
    metadata,
    sa.Column("kind", _name(255), primary_key=True),
    sa.Column("value", _name(255), primary_key=True),
    sa.Column("reason", LongText),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    **_ENGINE,
)

# What GroupResult.save keeps.
groups = sa.Table(
    "argus_groups",
    metadata,
    sa.Column("id", _name(255), primary_key=True),
    sa.Column("result", LongBytes, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    **_ENGINE,
)

# --- lifecycle ---

# A task that failed for good in a project that is to be paused or cancelled for it, until it is: store/alarms.py.
alarms = sa.Table(
    "argus_alarms",
    metadata,
    sa.Column("project_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("task_id", _name(255), primary_key=True),
    **_ENGINE,
)

# --- dependencies ---

# A task and one it comes after; `waits` of the child's lease counts those that are not met.
edges = sa.Table(
    "argus_edges",
    metadata,
    sa.Column("child_id", _name(255), primary_key=True),
    sa.Column("parent_id", _name(255), primary_key=True),
    # where the parent stands among the child's
    sa.Column("position", sa.Integer, nullable=False),
    # the child runs whatever becomes of the parent
    sa.Column("regardless", sa.SmallInteger, nullable=False),
    # the parent has ended, and the child was told
    sa.Column("met", sa.SmallInteger, nullable=False),
    sa.Index("argus_edges_parent", "parent_id", "met", "child_id"),
    **_ENGINE,
)

# --- limits ---

# What every limit allows. Who admits a task under it locks the row.
limits = sa.Table(
    "argus_limits",
    metadata,
    sa.Column("name", _name(300), primary_key=True),
    sa.Column("concurrency", sa.Integer),
    # microseconds between two starts, how many may come at once, and when the next is due if none does
    sa.Column("spacing", sa.BigInteger),
    sa.Column("burst", sa.Integer),
    sa.Column("tat", sa.BigInteger),
    # when to look whether the next that waits may go, where nothing else will
    sa.Column("due_at", sa.BigInteger),
    sa.Index("argus_limits_due", "due_at"),
    **_ENGINE,
)

# The limits of each task that has not ended: whether it has a slot, or waits for one, and its place in the line.
lease_limits = sa.Table(
    "argus_lease_limits",
    metadata,
    sa.Column("task_id", _name(255), primary_key=True),
    sa.Column("name", _name(300), primary_key=True),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("place", sa.Integer, nullable=False),
    sa.Column("since", sa.BigInteger, nullable=False),
    sa.Index("argus_lease_limits_next", "name", "state", "place", "since"),
    **_ENGINE,
)

# --- ticks ---

# Up to which due instant each beat entry has been sent.
ticks = sa.Table(
    "argus_ticks",
    metadata,
    sa.Column("entry", _name(255), primary_key=True),
    sa.Column("due_at", sa.BigInteger, nullable=False),
    sa.Column("ticked_at", sa.BigInteger, nullable=False),
    **_ENGINE,
)

# --- waiting without a worker ---

# What a project was told, under a name; the first to tell it wins. Not sent yet: a task waits for it.
events = sa.Table(
    "argus_events",
    metadata,
    sa.Column("project_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("name", _name(255), primary_key=True),
    sa.Column("payload", LongBytes),
    sa.Column("sent_at", sa.BigInteger),
    **_ENGINE,
)

# A suspended task and the event that makes its lease due before it is.
waits = sa.Table(
    "argus_waits",
    metadata,
    sa.Column("task_id", _name(255), primary_key=True),
    sa.Column("project_id", sa.BigInteger, nullable=False),
    sa.Column("name", _name(255), nullable=False),
    sa.Column("since", sa.BigInteger, nullable=False),
    sa.Column("until", sa.BigInteger),
    sa.Index("argus_waits_event", "project_id", "name"),
    **_ENGINE,
)
