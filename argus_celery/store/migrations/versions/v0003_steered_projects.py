"""Projects that can be steered: policies and deadlines, dependencies, limits, ticks of beat."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

metadata = sa.MetaData()

# Ids and names are compared byte by byte, as every other database does.
_EXACT = "utf8mb4_bin"


def _name(length: int) -> sa.String:
    return sa.String(length).with_variant(
        mysql.VARCHAR(length, charset="utf8mb4", collation=_EXACT), "mysql", "mariadb"
    )


LongText = sa.Text().with_variant(mysql.LONGTEXT(collation=_EXACT), "mysql", "mariadb")
_ENGINE: Any = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}

new_columns: dict[str, tuple[sa.Column[Any], ...]] = {
    "argus_projects": (
        sa.Column("weight", sa.Integer, nullable=False, server_default="1"),
        sa.Column("deadline_at", sa.BigInteger),
        sa.Column("limited", sa.SmallInteger, nullable=False, server_default="0"),
        sa.Column("reason", LongText),
    ),
    # --- timeline ---
    "argus_attempts": (
        sa.Column("node", _name(255)),
        sa.Column("seen_at", sa.BigInteger),
    ),
    "argus_tasks": (
        sa.Column("unique_key", _name(64)),
        sa.Column("limits", LongText),
    ),
    "argus_leases": (
        sa.Column("unique_key", _name(64)),
        sa.Column("limited", sa.SmallInteger, nullable=False, server_default="0"),
        sa.Column("leads", sa.SmallInteger, nullable=False, server_default="0"),
    ),
    # --- doctor ---
    "argus_holders": (sa.Column("skew_ms", sa.BigInteger),),
}
# --- lifecycle ---

alarms = sa.Table(
    "argus_alarms",
    metadata,
    sa.Column("project_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("task_id", _name(255), primary_key=True),
    **_ENGINE,
)

# --- dependencies ---

edges = sa.Table(
    "argus_edges",
    metadata,
    sa.Column("child_id", _name(255), primary_key=True),
    sa.Column("parent_id", _name(255), primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("regardless", sa.SmallInteger, nullable=False),
    sa.Column("met", sa.SmallInteger, nullable=False),
    sa.Index("argus_edges_parent", "parent_id", "met", "child_id"),
    **_ENGINE,
)

# --- limits ---

limits = sa.Table(
    "argus_limits",
    metadata,
    sa.Column("name", _name(300), primary_key=True),
    sa.Column("concurrency", sa.Integer),
    sa.Column("spacing", sa.BigInteger),
    sa.Column("burst", sa.Integer),
    sa.Column("tat", sa.BigInteger),
    sa.Column("due_at", sa.BigInteger),
    sa.Index("argus_limits_due", "due_at"),
    **_ENGINE,
)

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

# --- retention ---

# Index, table, columns, and which rows it holds where the database has partial indexes.
new_indexes: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("argus_projects_deadline", "argus_projects", ("status", "deadline_at"), "deadline_at IS NOT NULL"),
    ("argus_tasks_ended", "argus_tasks", ("project_id", "finished_at"), "finished_at IS NOT NULL"),
    (
        "argus_leases_share",
        "argus_leases",
        ("holder", "paused", "waits", "queue", "priority", "project_id", "eligible_at"),
        "holder = ''",
    ),
    ("argus_leases_unique", "argus_leases", ("unique_key",), "unique_key IS NOT NULL"),
)
unique_indexes = ("argus_leases_unique",)


def upgrade() -> None:
    metadata.create_all(op.get_bind())
    for table, columns in new_columns.items():
        for column in columns:
            op.add_column(table, column)
    for index, table, names, where in new_indexes:
        unique = index in unique_indexes
        op.create_index(
            index, table, names, unique=unique, postgresql_where=sa.text(where), sqlite_where=sa.text(where)
        )


def downgrade() -> None:
    for index, table, _, _ in new_indexes:
        op.drop_index(index, table)
    for table, columns in new_columns.items():
        for column in columns:
            op.drop_column(table, column.name)
    metadata.drop_all(op.get_bind())
