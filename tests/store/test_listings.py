"""Lists that a person filters, details of one task, and the board, on each database."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from argus_celery.flow import steer
from argus_celery.flow.complete import complete
from argus_celery.flow.enqueue import enqueue
from argus_celery.records import NOBODY, QUEUE, HolderFacts, Outcome, ProjectStatus, TaskState
from argus_celery.store import holders
from argus_celery.store.board import board, queue_names
from argus_celery.store.details import task_details
from argus_celery.store.listings import (
    ProjectFilter,
    ProjectOrder,
    TaskFilter,
    TaskOrder,
    list_projects,
    list_tasks,
    project_names,
    task_ids,
    task_names,
)
from argus_celery.store.names import fits
from argus_celery.store.reports import project_tasks
from argus_celery.store.schema import tasks
from tests.store.bench import Bench, new_task


def test_projects_are_filtered_by_glob_and_status_and_sorted(bench: Bench) -> None:
    for name in ("import 1", "import 2", "Import 3", "im%ort", "night"):
        steer.open_project(bench.rt, name)
    steer.close(bench.rt, "night")
    steer.pause(bench.rt, "import 2")
    running = bench.running(project="import 1")
    complete(bench.rt, running, Outcome(TaskState.FAILED))
    bench.enqueue(project="import 2")

    def found(wanted: ProjectFilter, order: ProjectOrder = ProjectOrder.NAME, limit: int = 9) -> list[str]:
        return [project.name for project in list_projects(bench.store, wanted, limit, order)]

    globs = {"import*": ["import 1", "import 2"], "import ?": ["import 1", "import 2"], "im%o*": ["im%ort"]}
    globs |= {"[i]mport*": [], "[!a]*": [], "import 1": ["import 1"], "im_ort": [], "i*%": [], "?m%ort": ["im%ort"]}
    for glob, names in globs.items():
        assert found(ProjectFilter(glob)) == names
        assert [name for name in found(ProjectFilter()) if fits(name, glob)] == names, "elsewhere than in SQL too"
    assert found(ProjectFilter(statuses=[ProjectStatus.COMPLETED])) == ["night"]
    assert found(ProjectFilter(paused=True)) == ["import 2"]
    assert "import 2" not in found(ProjectFilter("import*", paused=False))
    assert found(ProjectFilter(), ProjectOrder.FAILED)[0] == "import 1"
    assert found(ProjectFilter(), ProjectOrder.ALIVE)[0] == "import 2"
    assert found(ProjectFilter(), ProjectOrder.FINISHED)[0] == "night"
    assert found(ProjectFilter(), ProjectOrder.CREATED, limit=1) == ["night"]
    assert project_names(bench.store, "import*") == ["import 2", "import 1"]


def test_tasks_are_filtered_by_project_state_name_queue_and_key(bench: Bench) -> None:
    running = bench.running(project="a", name="shop.charge", key="order-1")
    done = bench.running(project="a", name="shop.mail")
    complete(bench.rt, done, Outcome(TaskState.SUCCEEDED))
    late = bench.enqueue(project="b", name="shop.charge", queue="slow", delay_ms=60_000)
    queued = bench.enqueue(project="b", name="crawl", key="order-2")

    def found(wanted: TaskFilter, limit: int = 9) -> set[str]:
        return {task.id for task in list_tasks(bench.store, wanted, limit)}

    assert found(TaskFilter("a")) == {running.task_id, done.task_id}
    assert found(TaskFilter(states=[TaskState.RUNNING])) == {running.task_id}
    assert found(TaskFilter(states=[TaskState.WAITING, TaskState.QUEUED])) == {late, queued}
    assert found(TaskFilter(states=[TaskState.SUCCEEDED])) == {done.task_id}
    assert found(TaskFilter(states=[TaskState.SUCCEEDED, TaskState.WAITING])) == {done.task_id, late}
    assert found(TaskFilter(name="shop.*", queue="slow")) == {late}
    assert found(TaskFilter(key="order-*")) == {running.task_id, queued}
    assert found(TaskFilter("c")) == set()
    assert len(found(TaskFilter(), limit=3)) == 3
    assert list_tasks(bench.store, TaskFilter(), 1, TaskOrder.NEWEST)[0].created_at >= max(
        task.created_at for task in list_tasks(bench.store, TaskFilter(), 9)
    )
    assert list_tasks(bench.store, TaskFilter(), 9, TaskOrder.ENDED)
    assert task_ids(bench.store, TaskFilter(states=[TaskState.WAITING, TaskState.RUNNING])) == {
        "a": [running.task_id],
        "b": [late],
    }
    assert task_names(bench.store, "a") == ["shop.charge", "shop.mail"]
    assert task_names(bench.store) == ["crawl", "shop.charge", "shop.mail"]


@pytest.mark.parametrize("task_id", ["nobody", "\0", ""])
def test_an_unknown_task_has_no_details(sqlite_bench: Bench, task_id: str) -> None:
    assert task_details(sqlite_bench.store, task_id) is None


def test_details_of_a_task_hold_its_lease_its_message_and_its_attempts(bench: Bench) -> None:
    facts = HolderFacts("w1", "celery@one", "one", 7, "boot", "pids", "start")
    bench.store.transaction(lambda connection: holders.register(bench.store, connection, facts))
    running = bench.running(project="a", body=b"[[17], {}, {}]")
    details = task_details(bench.store, running.task_id)
    assert details is not None and details.lease is not None and details.message is not None
    assert details.info.state is TaskState.RUNNING
    assert details.lease.eligible_at > details.now >= (details.lease.started_at or 0)
    assert (details.lease.paused, details.lease.waits) == (False, 0)
    assert details.message.body == b"[[17], {}, {}]"
    assert details.nodes == {"w1": "celery@one"}
    complete(bench.rt, running, Outcome(TaskState.FAILED, error="broke"))
    details = task_details(bench.store, running.task_id)
    assert details is not None and details.lease is None
    assert [(attempt.holder, attempt.outcome) for attempt in details.attempts] == [("w1", "failed")]


def test_the_board_counts_queues_and_workers_of_live_projects(bench: Bench) -> None:
    facts = HolderFacts("w1", "celery@one", "one", 7, "boot", "pids", "start")
    bench.store.transaction(lambda connection: holders.register(bench.store, connection, facts))
    bench.running(project="a")
    bench.enqueue(project="a", queue="slow")
    bench.enqueue(project="b", queue="slow", delay_ms=60_000)
    steer.open_project(bench.rt, "gone")
    steer.cancel(bench.rt, "gone")
    seen = board(bench.store)
    assert [project.name for project in seen.projects] == ["a", "b"]
    loads = [(q.queue, q.waiting, q.due, q.queued, q.running, q.oldest_due_at) for q in seen.queues]
    assert loads == [("celery", 0, 0, 0, 1, None), ("slow", 1, 0, 1, 0, None)]
    (worker,) = seen.workers
    assert (worker.node, worker.host, worker.pid, worker.running) == ("celery@one", "one", 7, 1)
    assert abs(seen.now - worker.seen_at) < 60_000
    assert queue_names(bench.store) == ["celery", "slow"]
    bench.pass_time(100)
    (slow,) = [load for load in board(bench.store).queues if load.queue == "slow"]
    assert (slow.due, slow.oldest_due_at is not None) == (1, True)


def test_a_worker_that_signed_off_or_died_is_on_the_board_only_while_it_holds_something(bench: Bench) -> None:
    for number in (1, 2, 3):
        facts = HolderFacts(f"w{number}", f"celery@{number}", "one", number, "boot", "pids", "start")
        bench.store.transaction(lambda connection, facts=facts: holders.register(bench.store, connection, facts))

    def there() -> list[tuple[str, int, bool]]:
        return [(load.id, load.running, load.died) for load in board(bench.store, lambda one: one.id == "w3").workers]

    assert there() == [("w1", 0, False), ("w2", 0, False)]
    running = bench.running(holder="w3")
    bench.store.transaction(lambda connection: holders.sign_off(bench.store, connection, "w1"))
    assert there() == [("w3", 1, True), ("w2", 0, False)]
    complete(bench.rt, running, Outcome(TaskState.SUCCEEDED))
    assert there() == [("w2", 0, False)]
    bench.store.transaction(lambda connection: holders.seen(bench.store, connection, "w1"))
    assert there() == [("w1", 0, False), ("w2", 0, False)], "the same process started another worker"


def test_a_worker_that_renews_is_seen(bench: Bench) -> None:
    facts = HolderFacts("w1", "celery@one", "one", 7, "boot", "pids", "start")
    bench.store.transaction(lambda connection: holders.register(bench.store, connection, facts))
    bench.pass_time(40)
    bench.running(holder="w1")
    (worker,) = board(bench.store).workers
    assert worker.seen_at - worker.started_at >= 40_000


def test_tasks_of_one_batch_are_listed_in_the_order_of_the_batch(bench: Bench) -> None:
    new = [new_task(project="a") for _ in range(50)]
    ids = [one.task_id for one in enqueue(bench.rt, new)]
    bench.store.transaction(lambda connection: connection.execute(sa.update(tasks).values(created_at=1)))
    for order in (ids, ids[::-1]):
        listed = list_tasks(bench.store, TaskFilter("a"), 99, TaskOrder.OLDEST if order is ids else TaskOrder.NEWEST)
        assert [task.id for task in listed] == order
    assert task_ids(bench.store, TaskFilter("a")) == {"a": ids}
    assert [task.id for task in project_tasks(bench.store, "a")] == ids
    assert NOBODY < QUEUE  # what the counting of holders relies on
