"""Chords counted in the store, revocations that outlive a restart, states and groups of the result backend."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

metadata = sa.MetaData()

# Ids and names are compared byte by byte, as every other database does.
_EXACT = "utf8mb4_bin"
LongText = sa.Text().with_variant(mysql.LONGTEXT(collation=_EXACT), "mysql", "mariadb")
LongBytes = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")


def _name(length: int) -> sa.String:
    return sa.String(length).with_variant(
        mysql.VARCHAR(length, charset="utf8mb4", collation=_EXACT), "mysql", "mariadb"
    )


_ENGINE: Any = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}

chords = sa.Table(
    "argus_chords",
    metadata,
    sa.Column("id", _name(255), primary_key=True),
    sa.Column("project_id", sa.BigInteger),
    sa.Column("size", sa.Integer),
    sa.Column("done", sa.Integer, nullable=False),
    sa.Column("owed", sa.SmallInteger, nullable=False),
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

revoked = sa.Table(
    "argus_revoked",
    metadata,
    sa.Column("kind", _name(255), primary_key=True),
    sa.Column("value", _name(255), primary_key=True),
    sa.Column("reason", LongText),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    **_ENGINE,
)

groups = sa.Table(
    "argus_groups",
    metadata,
    sa.Column("id", _name(255), primary_key=True),
    sa.Column("result", LongBytes, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    **_ENGINE,
)

new_columns: dict[str, tuple[sa.Column[Any], ...]] = {
    "argus_tasks": (
        sa.Column("abandoned", sa.SmallInteger, nullable=False, server_default="0"),
        sa.Column("meta", LongBytes),
    ),
    "argus_leases": (
        sa.Column("follows", sa.SmallInteger, nullable=False, server_default="0"),
        sa.Column("unknown_since", sa.BigInteger),
    ),
}


def upgrade() -> None:
    metadata.create_all(op.get_bind())
    for table, columns in new_columns.items():
        for column in columns:
            op.add_column(table, column)


def downgrade() -> None:
    for table, columns in new_columns.items():
        for column in columns:
            op.drop_column(table, column.name)
    metadata.drop_all(op.get_bind())
