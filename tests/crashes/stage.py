"""One store, a broker that is a file, a process that is killed, and the others that go on after it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from argus_celery.flow import deliver
from argus_celery.flow.claim import claim
from argus_celery.flow.complete import complete
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.mend import mend
from argus_celery.flow.restore import restore, sweep
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.steer import open_project
from argus_celery.records import Claim, Delivery, Dispatch, HolderFacts, NewTask, Outcome, Publish, TaskState
from argus_celery.store.schema import leases, projects, tasks
from argus_celery.testing.apart import Ended, apart
from tests.crashes.dying import Fate, Point
from tests.invariants import History, check_all_ended
from tests.model.worlds import World
from tests.store.bench import new_task

PATIENCE = 300.0
ROUNDS = 60


@dataclass
class FileBroker:
    """Its messages outlive the process that sent them."""

    path: Path
    taken: int = 0

    def publish(self, dispatches: Sequence[Dispatch]) -> Sequence[str]:
        with self.path.open("ab", buffering=0) as file:
            for one in dispatches:
                file.write(json.dumps([one.task_id, one.token]).encode() + b"\n")
        return ()

    def ever(self) -> list[Delivery]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [Delivery(*json.loads(line)) for line in lines]

    def fetch(self) -> list[Delivery]:
        """What came since the last time."""
        new = self.ever()[self.taken :]
        self.taken += len(new)
        return new


@dataclass
class Stage:
    """``given`` names what a scene has prepared for the act: claims in hand, by task."""

    world: World
    folder: Path
    given: dict[str, Claim] = field(default_factory=dict)
    bodies: dict[str, Callable[[Runtime, Claim], object]] = field(default_factory=dict)
    """What a task does, whoever runs it, where it does not just succeed."""

    def __post_init__(self) -> None:
        self.broker = FileBroker(self.folder / "broker")
        self.broker.path.unlink(missing_ok=True)
        self.world.begin_anew()
        self.rt = self._process(self.broker.publish)
        self.history = History(self.world.store)
        open_project(self.rt, "p")
        restore(self.rt, _facts("w1"), lambda facts: False)

    # --- what scenes are made of -------------------------------------------------------------------------------------

    def enqueue(self, *ids: str, **more: Any) -> None:
        enqueue(self.rt, [self.task(id_, **more) for id_ in ids])

    def task(self, task_id: str, **more: Any) -> NewTask:
        place = {} if "project_id" in more else {"project": "p"}
        return new_task(id=task_id, body=task_id.encode(), **{**place, **more})

    def run(self, *ids: str, holder: str = "w1", **more: Any) -> None:
        """These are enqueued, and claimed; the act has their claims."""
        self.enqueue(*ids, **more)
        self.claim(*ids, holder=holder)

    def claim(self, *ids: str, holder: str = "w1") -> None:
        newest = {one.task_id: one for one in self.broker.ever()}
        for one in claim(self.rt, holder, [newest[id_] for id_ in ids]):
            assert one is not None
            self.given[one.task_id] = one

    def perform(self, rt: Runtime, one: Claim) -> None:
        self.bodies.get(one.task_id, ends_with(Outcome(TaskState.SUCCEEDED, b"r")))(rt, one)

    # --- the process that dies ---------------------------------------------------------------------------------------

    def act(self, work: Callable[[Runtime], object], at: int | None) -> Ended:
        """In a process of its own; returns the points it came to."""
        fate = Fate(at)
        engine = self.world.store.engine
        engine.dispose()

        def live() -> list[Point]:
            self.world.store.take(engine)
            fate.rule(self.world.store)
            work(self._process(fate.publishing(self.broker.publish)))
            return fate.points

        return apart(live, self.folder, PATIENCE)

    def _process(self, publish: Publish) -> Runtime:
        return Runtime(self.world.store, self.world.rt.settings, publish)

    # --- those that go on --------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Its successor proves it dead, and works until all has ended."""
        self.history.check()
        restore(self.rt, _facts("w2"), lambda facts: facts.id == "w1")
        self._sweep()
        again = sweep(self.rt)
        assert not again.dispatched and not again.lapsed, f"a second sweep found more to do: {again}"
        self.history.check()
        for _ in range(ROUNDS):
            self._work()
            self._sweep()
            self.history.check()
            if not self._alive():
                break
            self.world.pass_time(40_000)
        for debt in deliver.pending(self.rt):
            deliver.done(self.rt, debt.task_id, debt.token)
        self._sweep()
        check_all_ended(self.world.store, self.history.revived, self.history.restarted)

    def _work(self) -> None:
        while batch := self.broker.fetch():
            for one in claim(self.rt, "w2", batch):
                if one is not None:
                    self.perform(self.rt, one)

    def _sweep(self) -> None:
        while (report := sweep(self.rt)).more and (report.dispatched or report.ended or report.lapsed):
            pass
        while mend(self.rt):
            pass

    def _alive(self) -> bool:
        return bool(self.rows(sa.select(leases.c.task_id).limit(1)))

    # --- reading -----------------------------------------------------------------------------------------------------

    def ends(self) -> dict[str, str]:
        """How each task ended, and each project stands."""
        of_tasks = {row.id: row.outcome for row in self.rows(sa.select(tasks.c.id, tasks.c.outcome))}
        of_projects = {f"project {row.name}": row.status for row in self.rows(sa.select(projects))}
        return of_tasks | of_projects

    def rows(self, query: sa.Select[Any]) -> list[Any]:
        return self.world.store.statement(lambda connection: list(connection.execute(query)))


def ends_with(outcome: Outcome) -> Callable[[Runtime, Claim], object]:
    return lambda rt, one: complete(rt, one, outcome)


def _facts(holder: str) -> HolderFacts:
    return HolderFacts(holder, f"celery@{holder}", "host", int(holder[1:]), "boot", "namespace", "0")
