"""Where letters come in, and where it is seen afterwards what has become of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property

import sqlalchemy as sa
from rich import box
from rich.table import Table

from examples.agent import tables
from examples.agent.app import DB, answer, argus
from examples.agent.world import ITEMS, World

PIECES = 1000


class Desk:
    """A project of letters, with a budget of tokens for all of them."""

    def __init__(self, world: World, budget: int, name: str = "letters") -> None:
        self.world = world
        self.engine = sa.create_engine(DB, poolclass=sa.NullPool)
        self.project = argus.project(name, on_failure="pause")
        self.allowed: set[int] = set()
        with self.engine.begin() as connection:
            tables.make(connection, dict.fromkeys(ITEMS, PIECES))
            tables.grant(connection, name, budget)

    def receive(self, letters: Iterable[str]) -> None:
        self.results = self.project.enqueue_many(answer.s(letter) for letter in letters)
        self.project.close()

    def look(self) -> bool:
        """Say yes to the refunds that the model wants by now. Is all done?"""
        for order in self.world.wishes - self.allowed:
            self.project.send(f"refund {order}", True)
            self.allowed.add(order)
        info = self.project.progress()
        return info.ended == info.total or not info.status.live

    def answers(self) -> list[str]:
        return [result.get(timeout=1) for result in self.results]

    # What has really happened

    @cached_property
    def done(self) -> Counter[str]:
        """How often each refund, mail and parcel was made."""
        with self.engine.connect() as connection:
            parcels = connection.execute(sa.select(tables.parcels.c.order_id, tables.parcels.c.item)).all()
        parts = [f"parcel {order} {item}" for order, item in parcels]
        return Counter([*parts, *(f"{what} {sorted(body.items())}" for what, body in self.world.effects)])

    @cached_property
    def budget(self) -> tuple[int, int]:
        """Tokens: all there were, and those that are spent."""
        c = tables.budgets.c
        with self.engine.connect() as connection:
            query = sa.select(c.total, c.spent).where(c.project == self.project.name)
            return tuple(connection.execute(query).one())  # type: ignore[return-value]

    def table(self) -> Table:
        total, spent = self.budget
        made = Table(box=box.SIMPLE_HEAD, show_header=False)
        made.add_column()
        made.add_column(justify="right")
        rows = {
            "letters answered": len(self.results),
            "refunds that a human has allowed": len(self.allowed),
            "refunds, parcels and mails": self.done.total(),
            "  of these made twice": self.done.total() - len(self.done),
            "  asked for again after a kill, and not made": self.world.repeats,
            "replies of the model": self.world.replies,
            "  given again, since a kill came before they were kept": self.world.replies - 4 * len(self.results),
            "tokens of the project": total,
            "  spent by its own count": spent,
            "  used by the model's count": self.world.tokens,
        }
        for label, number in rows.items():
            made.add_row(label, f"{number:,}")
        return made

    def complaints(self) -> list[str]:
        """What is off, one sentence each."""
        total, spent = self.budget
        checks = [
            (len(self.done) == 3 * len(self.results), f"{len(self.done)} things were done, not three for each letter"),
            (self.done.total() == len(self.done), "something was done twice"),
            (
                self.world.tokens <= spent <= total,
                f"{spent} tokens are spent of {total}, {self.world.tokens} were used",
            ),
        ]
        return [sentence for holds, sentence in checks if not holds]
