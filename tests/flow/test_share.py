"""Fair share: of what goes out of one queue and priority each project has its part, by its weight."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import sqlalchemy as sa

from argus_celery.config import Settings
from argus_celery.flow import share
from argus_celery.flow.configure import configure
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.revoke import revoke
from argus_celery.flow.runtime import Runtime
from argus_celery.store.leases import Lease
from argus_celery.store.schema import leases, projects
from tests.flow.conftest import FlowBench
from tests.store.bench import counted, new_task


@pytest.fixture
def rt(bench: FlowBench) -> Runtime:
    """Its window holds twelve messages."""
    url = bench.store.url.render_as_string(hide_password=False)
    return Runtime(bench.store, Settings(store_url=url, dispatch_window=12), bench.rt.publish)


def scheduled(bench: FlowBench, project: str, number: int) -> None:
    """Due a moment later, so that all of it waits in the store."""
    enqueue(bench.rt, [new_task(project=project, delay_ms=1) for _ in range(number)])
    bench.pass_time(0.01)


def went_out(bench: FlowBench) -> list[str]:
    ids = {one.id: one.name for one in _projects(bench)}
    out = [ids[bench.lease(one.task_id).project_id] for one in bench.sent]
    bench.sent.clear()
    return out


def _projects(bench: FlowBench) -> list[Any]:
    return bench.store.statement(lambda connection: list(connection.execute(projects.select())))


def test_a_small_project_does_not_wait_for_a_large_one_that_came_before_it(bench: FlowBench, rt: Runtime) -> None:
    scheduled(bench, "large", 100)
    scheduled(bench, "small", 3)
    dispatch(rt)
    out = went_out(bench)
    assert Counter(out) == {"large": 9, "small": 3}
    assert "small" in out[:4], "mixed, and not one behind the other"


def test_parts_follow_the_weights(bench: FlowBench, rt: Runtime) -> None:
    for name in ("one", "two"):
        scheduled(bench, name, 30)
    configure(rt, "two", {"weight": 3})
    dispatch(rt)
    assert Counter(went_out(bench)) == {"one": 3, "two": 9}


def test_more_projects_than_one_look_takes_have_their_turn(
    bench: FlowBench, rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share, "PROJECTS", 2)
    for number in range(5):
        scheduled(bench, f"p{number}", 12)
    seen: Counter[str] = Counter()
    for _ in range(5):
        dispatch(rt)
        seen.update(went_out(bench))
        _drain(bench)
    assert len(seen) >= 3
    assert sum(seen.values()) == 60


def _drain(bench: FlowBench) -> None:
    held = sa.select(leases.c.task_id).where(leases.c.holder == "queue")
    revoke(bench.rt, list(bench.store.statement(lambda connection: connection.execute(held).scalars().all())))


def test_only_where_several_wait_are_they_asked_one_by_one(bench: FlowBench, rt: Runtime) -> None:
    counts = []
    for names in (("one",), ("two", "three")):
        for name in names:
            scheduled(bench, name, 5)
        with counted(bench.store) as count:
            dispatch(rt)
        counts.append(count.statements)
        _drain(bench)
    assert counts[0] < counts[1]


def test_each_has_at_least_one_and_is_spread_over_the_whole() -> None:
    assert share.parts_of({1: 1, 2: 1_000_000}, 12) == {1: 1, 2: 11}
    row = [Lease(str(n), 1, "q", 0, "", False, 0, False) for n in range(6)]
    assert [one.task_id for one in share.mixed([row[:4], row[4:]])] == ["0", "4", "1", "2", "5", "3"]
