"""Faults that a flow must live through, made to order on a real store and a broker that is a list."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from sqlalchemy.engine import Connection

from argus_celery.records import Dispatch
from argus_celery.store.engine import Store

T = TypeVar("T")


class UnluckyStore(Store):
    """A real store that is ``away`` when told so, or loses the answer to the next calls after the commit."""

    lose_answers = 0
    away = False
    turned_away = 0

    def transaction(self, work: Callable[[Connection], T]) -> T:
        self._reached()
        return self._answered(super().transaction(work))

    def statement(self, work: Callable[[Connection], T]) -> T:
        self._reached()
        return self._answered(super().statement(work))

    @contextmanager
    def open(self) -> Iterator[Connection]:
        self._reached()
        with super().open() as connection:
            yield connection
        self._answered(None)

    def _reached(self) -> None:
        if self.away:
            self.turned_away += 1
            raise self._away(ConnectionError("connection refused"))

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


def meanwhile(store: Store, inside: Callable[[Connection], object], rival: Callable[[], T]) -> T:
    """Let ``rival`` begin while a transaction of ``inside`` is open; it has to wait for its end. Returns its answer."""
    with ThreadPoolExecutor(1) as pool:
        with store.open() as connection:
            inside(connection)
            running = pool.submit(rival)
            waited = not wait([running], timeout=0.3).done
        answer = running.result(timeout=30)
    assert waited, "it did not wait for the transaction under way"
    return answer
