"""A body with steps, loops and transactions inside each other, cut off at each of its points in turn."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
import sqlalchemy as sa

from argus_celery import current
from tests.flow.conftest import FlowBench
from tests.flow.running import begin, taken_over


class Killed(BaseException):
    """Stands for the end of the process."""


@dataclass
class World:
    """What the functions of steps have done, in whatever run."""

    kill_at: int
    point: int = 0
    done: Counter[str] = field(default_factory=Counter)

    def pass_point(self) -> None:
        self.point += 1
        if self.point == self.kill_at:
            raise Killed

    def do(self, what: str) -> str:
        self.pass_point()
        self.done[what] += 1
        self.pass_point()
        return what

    def pay(self, connection: Any, who: str) -> str:
        connection.execute(sa.text("INSERT INTO paid VALUES (:who)"), {"who": who})
        return self.do(f"pay {who}")

    def outer(self, number: int) -> list[str]:
        return [current.step("inner", self.do, f"{number}.{part}") for part in range(2)]

    def body(self, batch: int) -> list[Any]:
        found: list[Any] = [current.step("first", self.do, "first")]
        found += [current.step("outer", self.outer, number) for number in range(2)]
        for item in current.each(["x", "y", "y"], batch=batch):
            current.step("fetch", self.do, f"fetch {item}")
            for part in current.each([1, 2]):
                current.step("part", self.do, f"part {part}")
            with current.transaction() as connection:
                current.step("pay", self.pay, connection, item)
                self.pass_point()
            self.pass_point()
        found.append(current.step("last", self.do, "last"))
        return found


def run(bench: FlowBench, world: World, claim: Any, batch: int) -> Any:
    begun = begin(bench, claim)
    begun.progress = world.pass_point  # type: ignore[method-assign]  # behind each record
    return world.body(batch)


@pytest.mark.parametrize("batch", [1, 2])
def test_wherever_it_is_cut_off_it_ends_alike_and_repeats_one_call_at_most(bench: FlowBench, batch: int) -> None:
    bench.store.transaction(lambda c: c.exec_driver_sql("CREATE TABLE paid (who VARCHAR(9))"))
    whole = World(0)
    expected = run(bench, whole, bench.running(), batch)
    step_of = 1 if bench.store.dialect_name == "sqlite" else 7  # the points are those of the flow, not of the database
    for kill_at in count(1, step_of):
        if kill_at > whole.point:
            break
        world, claim = World(kill_at), bench.running()
        with pytest.raises(Killed):
            run(bench, world, claim, batch)
        assert run(bench, world, taken_over(bench, claim), batch) == expected, kill_at
        assert sum((world.done - whole.done).values()) <= 1, (kill_at, world.done - whole.done)
        assert not whole.done - world.done, kill_at
    paid = bench.store.statement(lambda c: Counter(row[0] for row in c.exec_driver_sql("SELECT who FROM paid")))
    runs = len(range(1, whole.point + 1, step_of)) + 1
    assert paid == {"x": runs, "y": 2 * runs}
