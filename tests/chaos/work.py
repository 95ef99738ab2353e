"""The work: kinds of pieces, each with how it is sent and what has to come of it. A seed and a number make a piece."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

import sqlalchemy as sa
from celery import Celery, chain, chord, group

from argus_celery import Argus
from tests.faults.business import insert, rows_of

PROJECT = "chaos"
POISON = "poison"
"""The queue of what kills its process: only workers with child processes take from it."""


@dataclass(frozen=True, slots=True)
class Expected:
    """One task that has to be there in the end, whatever was broken."""

    tag: str
    outcome: str = "succeeded"
    value: str | None = None
    """What its last run has to note."""
    delay: float = 0.0
    """Seconds after its sending before which it may not run."""
    after: tuple[str, ...] = ()
    """Tags that have to be done before."""
    effects: tuple[str, ...] = ()
    """Tags of which the business table has exactly one row."""


class Piece:
    """Some work that the producer sends as one. Sending it again changes nothing."""

    weight: ClassVar[int]

    def __init__(self, tag: str, random: Random) -> None:
        self.tag, self.random = tag, random
        self.draw()

    def draw(self) -> None:
        """Choose what the seed leaves open."""

    def send(self, app: Celery) -> None:
        raise NotImplementedError

    def expected(self) -> list[Expected]:
        return [Expected(self.tag)]

    def parts(self, count: int) -> list[str]:
        return [f"{self.tag}.{number}" for number in range(count)]


def piece(seed: int, number: int) -> Piece:
    random = Random(f"{seed}/work/{number}")
    [kind] = random.choices(KINDS, [one.weight for one in KINDS])
    return kind(f"p{number}", random)


class Quick(Piece):
    weight = 40

    def send(self, app: Celery) -> None:
        call(app, "quick", self.tag)


class Many(Piece):
    """A batch in one transaction."""

    weight = 3

    def draw(self) -> None:
        self.tags = self.parts(self.random.randint(10, 40))

    def send(self, app: Celery) -> None:
        project_of(app).enqueue_many([app.tasks["quick"].s(tag).set(task_id=tag) for tag in self.tags])

    def expected(self) -> list[Expected]:
        return [Expected(tag) for tag in self.tags]


class Slow(Piece):
    weight = 8

    def draw(self) -> None:
        self.seconds = round(self.random.uniform(0.2, 2), 2)

    def send(self, app: Celery) -> None:
        call(app, "slow", self.tag, self.seconds)


class Long(Slow):
    """Longer than a lease."""

    weight = 1

    def draw(self) -> None:
        self.seconds = round(self.random.uniform(7, 10), 2)


class Chain(Piece):
    weight = 8

    def draw(self) -> None:
        self.tags = self.parts(self.random.randint(2, 4))

    def send(self, app: Celery) -> None:
        first, *others = [app.tasks["link"].s(tag).set(task_id=tag) for tag in self.tags]
        chain(first.clone(args=(0,)), *others).apply_async()

    def expected(self) -> list[Expected]:
        before = [(), *((tag,) for tag in self.tags)]
        return [Expected(tag, value=str(at), after=before[at]) for at, tag in enumerate(self.tags)]


class Chord(Piece):
    weight = 5

    def draw(self) -> None:
        self.tags = self.parts(self.random.randint(2, 4))

    def send(self, app: Celery) -> None:
        header = group([app.tasks["quick"].s(tag).set(task_id=tag) for tag in self.tags], app=app)
        header.options["task_id"] = f"{self.tag}.group"
        body = app.tasks["gather"].s(self._body).set(task_id=self._body)
        chord(header, body, app=app).apply_async()

    def expected(self) -> list[Expected]:
        body = Expected(self._body, value=",".join(self.tags), after=tuple(self.tags))
        return [*(Expected(tag) for tag in self.tags), body]

    @property
    def _body(self) -> str:
        return f"{self.tag}.body"


class Retrying(Piece):
    weight = 6

    def draw(self) -> None:
        self.times = self.random.randint(1, 2)

    def send(self, app: Celery) -> None:
        call(app, "flaky", self.tag, self.times)

    def expected(self) -> list[Expected]:
        return [Expected(self.tag, value=str(self.times))]


class Later(Piece):
    weight = 6

    def draw(self) -> None:
        self.countdown = round(self.random.uniform(1, 10), 2)

    def send(self, app: Celery) -> None:
        call(app, "quick", self.tag, countdown=self.countdown)

    def expected(self) -> list[Expected]:
        return [Expected(self.tag, delay=self.countdown)]


class Effect(Piece):
    """A row in the business table, and one only."""

    weight = 8

    def send(self, app: Celery) -> None:
        call(app, "effect", self.tag)

    def expected(self) -> list[Expected]:
        return [Expected(self.tag, effects=(self.tag,))]


class Traces(Piece):
    """A row for each run that comes so far: their tokens have to rise."""

    weight = 3

    def send(self, app: Celery) -> None:
        call(app, "trace", self.tag)


class Steps(Piece):
    weight = 5

    def draw(self) -> None:
        self.count = self.random.randint(2, 4)

    def send(self, app: Celery) -> None:
        call(app, "steps", self.tag, self.count)

    def expected(self) -> list[Expected]:
        return [Expected(self.tag, effects=tuple(self.parts(self.count)))]


class FanOut(Piece):
    """Its children's ids are derived, so that a repeated run enqueues none twice."""

    weight = 4

    def draw(self) -> None:
        self.count = self.random.randint(2, 4)

    def send(self, app: Celery) -> None:
        call(app, "fan", self.tag, self.count)

    def expected(self) -> list[Expected]:
        return [Expected(self.tag), *(Expected(tag) for tag in self.parts(self.count))]


class Failing(Piece):
    weight = 2

    def send(self, app: Celery) -> None:
        call(app, "broken", self.tag, link_error=app.signature("errback"))

    def expected(self) -> list[Expected]:
        return [Expected(self.tag, "failed"), Expected(f"{self.tag}.err")]


class Keyed(Piece):
    """Sent twice under one idempotency key."""

    weight = 3

    def send(self, app: Celery) -> None:
        for _ in range(2):
            project_of(app).enqueue(app.tasks["quick"].s(self.tag), key=self.tag)


class After(Piece):
    """A task that waits for others, however they are sent."""

    weight = 4

    def draw(self) -> None:
        self.tags = self.parts(self.random.randint(1, 3))

    def send(self, app: Celery) -> None:
        quick = app.tasks["quick"]
        parents = project_of(app).enqueue_many([quick.s(tag).set(task_id=tag) for tag in self.tags])
        project_of(app).enqueue(quick.s(self.tag).set(task_id=self.tag), after=parents)

    def expected(self) -> list[Expected]:
        return [*(Expected(tag) for tag in self.tags), Expected(self.tag, after=tuple(self.tags))]


class Committed(Piece):
    """A row and a task in one transaction of the producer's own: the task sees the row, and there is one of each."""

    weight = 4

    def send(self, app: Celery) -> None:
        with sa.create_engine(store_of(app), poolclass=sa.NullPool).begin() as connection:
            if not rows_of(connection, self.tag):
                insert(connection, self.tag)
            call(app, "readrow", self.tag, argus_session=connection)

    def expected(self) -> list[Expected]:
        return [Expected(self.tag, value="1", effects=(self.tag,))]


class Sleeping(Piece):
    """Gives its worker back in between, with what it has done."""

    weight = 3

    def draw(self) -> None:
        self.seconds = round(self.random.uniform(1, 3), 2)

    def send(self, app: Celery) -> None:
        call(app, "sleepy", self.tag, self.seconds)

    def expected(self) -> list[Expected]:
        return [Expected(self.tag, effects=(f"{self.tag}.before", f"{self.tag}.behind"))]


class Revoked(Piece):
    """Taken back before it is due."""

    weight = 2

    def send(self, app: Celery) -> None:
        call(app, "quick", self.tag, countdown=3600)
        app.AsyncResult(self.tag).revoke()

    def expected(self) -> list[Expected]:
        return [Expected(self.tag, "cancelled")]


class Poison(Piece):
    """Kills its process each time, until it is a dead letter."""

    weight = 1

    def send(self, app: Celery) -> None:
        call(app, "poison", self.tag, queue=POISON)

    def expected(self) -> list[Expected]:
        return [Expected(self.tag, "dead")]


KINDS: list[type[Piece]] = [
    Quick, Many, Slow, Long, Chain, Chord, Retrying, Later, Effect, Traces, Steps, FanOut, Failing, Keyed, After,
    Committed, Sleeping, Revoked, Poison,
]  # fmt: skip


def call(app: Celery, body: str, tag: str, *arguments: Any, **options: Any) -> None:
    app.tasks[body].apply_async((tag, *arguments), task_id=tag, **options)


def store_of(app: Celery) -> Any:
    argus = Argus.of(app)
    assert argus is not None
    return argus.runtime.store.url


def project_of(app: Celery) -> Any:
    argus = Argus.of(app)
    assert argus is not None
    return argus.project(PROJECT)
