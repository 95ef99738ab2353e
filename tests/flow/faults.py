"""Faults that a flow must live through, made to order on a real store and a broker that is a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sqlalchemy.engine import Connection

from argus_celery.records import Dispatch
from argus_celery.store.engine import Store

T = TypeVar("T")


class UnluckyStore(Store):
    """A store on which the answer to the next ``lose_answers`` calls is lost after the database has committed."""

    lose_answers = 0

    def transaction(self, work: Callable[[Connection], T]) -> T:
        return self._answered(super().transaction(work))

    def statement(self, work: Callable[[Connection], T]) -> T:
        return self._answered(super().statement(work))

    def _answered(self, answer: T) -> T:
        if self.lose_answers > 0:
            self.lose_answers -= 1
            raise self._away(ConnectionError("the connection broke before the answer came"))
        return answer


@dataclass
class LossyBroker:
    """Keeps published messages until they are delivered, and may refuse, lose or double them on the way in."""

    queue: list[Dispatch] = field(default_factory=list)
    ever: list[Dispatch] = field(default_factory=list)
    """All that was published, for the tests to deliver again at any later time."""
    refuses = False
    loses = False
    doubles = False

    def publish(self, dispatches: Sequence[Dispatch]) -> Sequence[str]:
        if self.refuses:
            return [one.task_id for one in dispatches]
        self.ever += dispatches
        if not self.loses:
            self.queue += list(dispatches) * (2 if self.doubles else 1)
        return ()
