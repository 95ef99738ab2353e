"""The first tables. A copy that never changes: what ``schema.py`` says later is reached by later versions."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

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
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("closed_at", sa.BigInteger),
    sa.Column("finished_at", sa.BigInteger),
    sa.Index("argus_projects_status", "status"),
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
    sa.Column("undelivered", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("finished_at", sa.BigInteger),
    sa.UniqueConstraint("project_id", "key", name="argus_tasks_key"),
    sa.Index("argus_tasks_outcome", "project_id", "outcome"),
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
    sa.Column("paused", sa.SmallInteger, nullable=False),
    sa.Column("acquired_at", sa.BigInteger),
    sa.Column("started_at", sa.BigInteger),
    sa.Column("dispatches", sa.Integer, nullable=False),
    # Every scheduler question is a prefix of this one: rows of a holder, and due rows of a queue in order.
    sa.Index("argus_leases_due", "holder", "paused", "waits", "queue", "priority", "eligible_at"),
    sa.Index("argus_leases_project", "project_id", "paused"),
    **_ENGINE,
)

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
    **_ENGINE,
)


def upgrade() -> None:
    metadata.create_all(op.get_bind())


def downgrade() -> None:
    metadata.drop_all(op.get_bind())
