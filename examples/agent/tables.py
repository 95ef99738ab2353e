"""The agent's own tables, in the store's database: budgets of tokens, stock, and parcels."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

metadata = sa.MetaData()

budgets = sa.Table(
    "agent_budgets",
    metadata,
    sa.Column("project", sa.String(200), primary_key=True),
    sa.Column("total", sa.Integer, nullable=False),
    sa.Column("spent", sa.Integer, nullable=False),
)
stock = sa.Table(
    "agent_stock",
    metadata,
    sa.Column("item", sa.String(50), primary_key=True),
    sa.Column("pieces", sa.Integer, nullable=False),
)
# It has no unique column but the id, so that what is sent twice is seen.
parcels = sa.Table(
    "agent_parcels",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("order_id", sa.Integer, nullable=False),
    sa.Column("item", sa.String(50), nullable=False),
)


class OutOfBudget(Exception):
    """The project has spent its tokens: give it more, then ``project.retry_failed()``."""


def make(connection: Connection, items: dict[str, int]) -> None:
    """The tables, and so many of each item."""
    metadata.create_all(connection)
    connection.execute(sa.insert(stock), [{"item": item, "pieces": pieces} for item, pieces in items.items()])


def grant(connection: Connection, project: str, tokens: int) -> None:
    """Let a project spend so many tokens more."""
    more = sa.update(budgets).where(budgets.c.project == project).values(total=budgets.c.total + tokens)
    if connection.execute(more).rowcount == 0:
        connection.execute(sa.insert(budgets).values(project=project, total=tokens, spent=0))


def take(connection: Connection, project: str, tokens: int) -> None:
    """Raises ``OutOfBudget``, and nothing is taken, if that is more than the project has left."""
    enough = (budgets.c.project == project, budgets.c.total - budgets.c.spent >= tokens)
    if connection.execute(sa.update(budgets).where(*enough).values(spent=budgets.c.spent + tokens)).rowcount == 0:
        raise OutOfBudget(f"project {project!r} has no {tokens} tokens left")


def give_back(connection: Connection, project: str, tokens: int) -> None:
    mine = budgets.c.project == project
    connection.execute(sa.update(budgets).where(mine).values(spent=budgets.c.spent - tokens))


def ship(connection: Connection, order: int, item: str) -> str:
    """Take one from the stock and send it."""
    there = (stock.c.item == item, stock.c.pieces > 0)
    if connection.execute(sa.update(stock).where(*there).values(pieces=stock.c.pieces - 1)).rowcount == 0:
        return f"no {item} is left"
    connection.execute(sa.insert(parcels).values(order_id=order, item=item))
    return f"one {item} is on its way"
