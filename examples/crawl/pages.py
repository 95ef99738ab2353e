"""The tables of what was found, in the store's database. They have no unique column but the id, so that a page that
is saved twice is seen."""

from __future__ import annotations

from collections import Counter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

metadata = sa.MetaData()

pages = sa.Table(
    "crawl_pages",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("url", sa.String(500), nullable=False, index=True),
    sa.Column("title", sa.String(200)),
    sa.Column("words", sa.Integer, nullable=False),
)
links = sa.Table(
    "crawl_links",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("source", sa.String(500), nullable=False),
    sa.Column("target", sa.String(500), nullable=False, index=True),
)


def save(connection: Connection, page: dict[str, Any]) -> None:
    """A page, and where it leads."""
    columns = {name: page[name] for name in ("url", "title", "words")}
    connection.execute(sa.insert(pages).values(columns))
    if page["links"]:
        rows = [{"source": page["url"], "target": target} for target in page["links"]]
        connection.execute(sa.insert(links), rows)


def unvisited(connection: Connection) -> list[str]:
    """What pages lead to and was not saved yet."""
    known = sa.exists().where(pages.c.url == links.c.target)
    query = sa.select(links.c.target).distinct().where(~known).order_by(links.c.target)
    return list(connection.execute(query).scalars())


def sum_up(connection: Connection) -> dict[str, Any]:
    """What the whole site is."""
    found = pages.c.title.is_not(None)
    count = sa.select(sa.func.count(pages.c.title), sa.func.coalesce(sa.func.sum(pages.c.words), 0))
    number, words = connection.execute(count).one()
    broken = connection.execute(sa.select(pages.c.url).where(~found).order_by(pages.c.url)).scalars()
    led = connection.execute(sa.select(sa.func.count()).select_from(links)).scalar_one()
    return {"pages": int(number), "words": int(words), "links": int(led), "broken": list(broken)}


def saved(connection: Connection) -> Counter[str]:
    """How often each page was saved."""
    query = sa.select(pages.c.url, sa.func.count()).group_by(pages.c.url)
    return Counter(dict(connection.execute(query).tuples().all()))
