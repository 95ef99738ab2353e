"""What a person is told: tasks in the order of their batch, workers that have signed off, runs whose process died."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

metadata = sa.MetaData()

new_columns: dict[str, tuple[sa.Column[Any], ...]] = {
    "argus_tasks": (sa.Column("number", sa.Integer, nullable=False, server_default="0"),),
    "argus_attempts": (sa.Column("died", sa.SmallInteger, nullable=False, server_default="0"),),
    "argus_holders": (sa.Column("left_at", sa.BigInteger),),
}


def upgrade() -> None:
    for table, columns in new_columns.items():
        for column in columns:
            op.add_column(table, column)


def downgrade() -> None:
    for table, columns in new_columns.items():
        for column in columns:
            op.drop_column(table, column.name)
