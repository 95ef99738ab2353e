"""The business database of the bench: the effect table, without a unique key, so that a double write shows."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()
effects = sa.Table(
    "shop_effects",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("tag", sa.String(50), nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    mysql_engine="InnoDB",
)


def create(url: str) -> None:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    metadata.create_all(engine)


def insert(connection: sa.Connection, tag: str) -> None:
    """A row that a producer writes."""
    connection.execute(sa.insert(effects).values(tag=tag, token=0))


def tokens_of(url: str, tag: str) -> list[int]:
    """The tokens under which this tag's effect was written, in order."""
    with sa.create_engine(url, poolclass=sa.NullPool).connect() as connection:
        query = sa.select(effects.c.token).where(effects.c.tag == tag).order_by(effects.c.id)
        return list(connection.scalars(query))


def rows_of(connection: sa.Connection, tag: str) -> int:
    return connection.execute(sa.select(sa.func.count()).where(effects.c.tag == tag)).scalar_one()
