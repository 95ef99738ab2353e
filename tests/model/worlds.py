"""The world that the state machine moves in: one store, several processes on it, and a broker not to be trusted."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from argus_celery.config import Settings
from argus_celery.flow.runtime import Runtime
from argus_celery.records import Message
from argus_celery.store.engine import Store
from argus_celery.store.schema import metadata
from tests.flow.faults import LossyBroker, UnluckyStore

TIMES = {"lease_ttl": 6, "sweep_interval": 3, "dispatch_ttl": 3, "dispatch_ttl_max": 30}


@dataclass
class Known:
    """What the model knows of one task it handed in."""

    project: str
    message: Message
    not_before: int = 0
    expires: int | None = None
    newest: int = 0
    """The newest token that was granted."""
    ended: bool = False
    after: tuple[str, ...] = ()
    """What has to succeed before it runs."""
    awaits: str | None = None
    """The event that has to be told before it runs again."""


class Still(Store):
    """Its clock moves by ``clock_shift`` alone, so that a life goes the same way however slow the machine is."""

    began = 0

    @property
    def now(self) -> sa.ColumnElement[int]:
        return sa.literal_column(str(self.began + self.clock_shift), sa.BigInteger)

    def take(self, engine: sa.Engine) -> None:
        """In a fork: the parent's engine, which has no connection open, with the statements that it has compiled."""
        self._engines = {os.getpid(): engine}


class UnluckyStill(UnluckyStore, Still):
    pass


@dataclass
class World:
    url: str
    window: int = 4
    broker: LossyBroker = field(default_factory=LossyBroker)

    def __post_init__(self) -> None:
        settings = Settings(store_url=self.url, max_losses=2, dispatch_window=self.window, **TIMES)
        self.store = Still(self.url, app_name="model")
        self.unlucky_store = UnluckyStill(self.url, app_name="model")
        metadata.create_all(self.store.engine)
        self.rt = Runtime(self.store, settings, self.broker.publish)
        self.unlucky = Runtime(self.unlucky_store, settings, self.broker.publish)
        self._set_the_clock()  # once: the statements of a store are kept by how far its clock was moved
        self.begin_anew()

    def begin_anew(self) -> None:
        """With an empty store, and with warm statements."""
        self.store.clock_shift = self.unlucky_store.clock_shift = 0
        self.broker.queue.clear()
        self.broker.ever.clear()
        self.fortune()
        for rt in (self.rt, self.unlucky):
            rt.window.__init__()  # type: ignore[misc]
            rt.project_ids.clear()
        self._empty()

    def _empty(self) -> None:
        with self.store.engine.begin() as connection:
            for table in reversed(metadata.sorted_tables):
                connection.execute(sa.delete(table))

    def _set_the_clock(self) -> None:
        now = sa.select(self.store.dialect.now())
        self.store.began = self.store.statement(lambda connection: connection.execute(now).scalar_one())
        self.unlucky_store.began = self.store.began

    def process(self, *, unlucky: bool) -> Runtime:
        """The process that makes the next call; an unlucky one loses its answer once."""
        self.rt.window.forget()
        self.unlucky.window.forget()
        if not unlucky:
            return self.rt
        self.unlucky_store.lose_answers = 1
        return self.unlucky

    def fortune(self) -> None:
        """The fault is over, whether it struck or not."""
        self.unlucky_store.lose_answers = 0
        self.broker.refuses = self.broker.loses = self.broker.doubles = False

    def pass_time(self, milliseconds: int) -> None:
        self.store.clock_shift += milliseconds
        self.unlucky_store.clock_shift = self.store.clock_shift

    def now(self) -> int:
        return self.store.began + self.store.clock_shift

    def row(self, task_id: str, table: sa.Table) -> Any:
        column = table.c.task_id if "task_id" in table.c else table.c.id
        return self.store.statement(lambda c: c.execute(sa.select(table).where(column == task_id)).first())

    def close(self) -> None:
        self.store.dispose()
        self.unlucky_store.dispose()
