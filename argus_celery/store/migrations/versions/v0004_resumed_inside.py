"""Tasks that resume inside: what they wait for, and until when they have shown progress."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

metadata = sa.MetaData()

# Ids and names are compared byte by byte, as every other database does.
_EXACT = "utf8mb4_bin"


def _name(length: int) -> sa.String:
    return sa.String(length).with_variant(
        mysql.VARCHAR(length, charset="utf8mb4", collation=_EXACT), "mysql", "mariadb"
    )


LongBytes = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
_ENGINE: Any = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}

new_columns: dict[str, tuple[sa.Column[Any], ...]] = {
    "argus_leases": (
        sa.Column("progress_until", sa.BigInteger),
        sa.Column("progress_timeout", sa.BigInteger),
    ),
}

events = sa.Table(
    "argus_events",
    metadata,
    sa.Column("project_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("name", _name(255), primary_key=True),
    sa.Column("payload", LongBytes),
    sa.Column("sent_at", sa.BigInteger),
    **_ENGINE,
)

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
