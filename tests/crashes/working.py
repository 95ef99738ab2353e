"""Producers and workers, on rows that make them do all they can do at once."""

from __future__ import annotations

from argus_celery.flow import steer, step
from argus_celery.flow.claim import adopt, claim
from argus_celery.flow.complete import complete
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.lapse import lapse
from argus_celery.flow.release import release
from argus_celery.flow.retry import park, retry
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.suspend import Wait, suspend
from argus_celery.flow.transaction import transaction
from argus_celery.records import Bound, Claim, Delivery, OnFailure, Outcome, TaskState
from argus_celery.store.schema import tasks
from tests.crashes.scenes import scene
from tests.crashes.stage import Stage, ends_with

BROKEN = Outcome(TaskState.FAILED, None, "broke")
ONE = (Bound("one at a time", concurrency=1),)


# --- producers -----------------------------------------------------------------------------------------------------


def _a_slot_is_taken(stage: Stage) -> None:
    stage.enqueue("first", limits=ONE)


@scene(_a_slot_is_taken, repeats=True)
def enqueueing(stage: Stage, rt: Runtime) -> None:
    enqueue(
        rt,
        [
            stage.task("plain"),
            stage.task("keyed", key="k"),
            stage.task("late", delay_ms=2_000),
            stage.task("behind", after=("plain", "k")),
            stage.task("limited", limits=ONE),
            stage.task("unique", unique="u"),
            stage.task("over the window"),
            stage.task("in another project", project="q", queue="slow", priority=3),
        ],
    )


@scene(repeats=True)
def adopting(stage: Stage, rt: Runtime) -> None:
    """Redelivered by the broker, for it was not acked."""
    token = adopt(rt, stage.task("a"))
    claim(rt, "w1", [Delivery("a", token)] if token else [])


# --- workers -------------------------------------------------------------------------------------------------------


@scene(lambda stage: stage.enqueue("a", "b", "c"))
def claiming(stage: Stage, rt: Runtime) -> None:
    claim(rt, "w1", stage.broker.ever())


def _work_with_all_behind_it(stage: Stage) -> None:
    stage.run("a", limits=ONE)
    stage.enqueue("in the line", limits=ONE)
    stage.enqueue("behind", after=("a",))
    stage.enqueue("behind both", after=("a", "behind"))

    def body(rt: Runtime, one: Claim) -> None:
        place = {"project_id": one.project_id, "inside": True, "parent_id": one.task_id}
        children = (stage.task("child 1", **place), stage.task("child 2", **place, after=("behind",)))
        complete(rt, one, Outcome(TaskState.SUCCEEDED, b"r", continuations=children))

    stage.bodies["a"] = body


@scene(_work_with_all_behind_it)
def completing(stage: Stage, rt: Runtime) -> None:
    stage.perform(rt, stage.given["a"])


def work_that_fails(stage: Stage) -> None:
    stage.run("a")
    stage.enqueue("behind", after=("a",))
    stage.enqueue("behind that", after=("behind",))
    stage.enqueue("regardless", after=("a",), regardless=True)
    stage.bodies["a"] = ends_with(BROKEN)


@scene(work_that_fails)
def failing(stage: Stage, rt: Runtime) -> None:
    stage.perform(rt, stage.given["a"])


def _work_that_fails_its_project(stage: Stage) -> None:
    steer.open_project(stage.rt, "q", {"on_failure": OnFailure.CANCEL})
    stage.run("a", project="q")
    stage.enqueue("waits", project="q", delay_ms=2_000)
    stage.enqueue("behind", project="q", after=("a",), regardless=True)
    stage.bodies["a"] = ends_with(BROKEN)


@scene(_work_that_fails_its_project)
def failing_a_project(stage: Stage, rt: Runtime) -> None:
    stage.perform(rt, stage.given["a"])


def _limited_work(stage: Stage) -> None:
    stage.run("a", limits=ONE)
    stage.enqueue("in the line", limits=ONE)


@scene(_limited_work)
def retrying_at_once(stage: Stage, rt: Runtime) -> None:
    retry(rt, stage.given["a"], stage.task("a"), "once more")


@scene(_limited_work)
def retrying_later(stage: Stage, rt: Runtime) -> None:
    retry(rt, stage.given["a"], stage.task("a", delay_ms=2_000, queue="other"), "once more")


def _work_that_is_replaced(stage: Stage) -> None:
    stage.run("a")

    def first(rt: Runtime, one: Claim) -> object:
        if stage.world.row("part", tasks) is not None:
            return complete(rt, one, Outcome(TaskState.SUCCEEDED))  # by its successor's message
        return park(rt, one, [stage.task("part", project_id=one.project_id, inside=True)])

    def part(rt: Runtime, one: Claim) -> None:
        successor = stage.task("a", project_id=one.project_id, inside=True, takes_over=True)
        complete(rt, one, Outcome(TaskState.SUCCEEDED, continuations=(successor,)))

    stage.bodies |= {"a": first, "part": part}


@scene(_work_that_is_replaced)
def replacing(stage: Stage, rt: Runtime) -> None:
    stage.perform(rt, stage.given["a"])


def _work_that_waits(stage: Stage) -> None:
    stage.run("a", limits=ONE)
    stage.enqueue("in the line", limits=ONE)


@scene(_work_that_waits)
def suspending(stage: Stage, rt: Runtime) -> None:
    suspend(rt, stage.given["a"], Wait("wait", "e", until=stage.world.now() + 2_000))


@scene(_work_that_waits)
def recording_steps(stage: Stage, rt: Runtime) -> None:
    step.record_all(rt, stage.given["a"], {f"step {number}": b"v" for number in range(3)})


@scene(_work_that_waits)
def writing_through_the_fence(stage: Stage, rt: Runtime) -> None:
    with transaction(rt, stage.given["a"]) as connection:
        step.record_by(rt, connection, stage.given["a"], {"step": b"v"})


@scene(_limited_work)
def releasing(stage: Stage, rt: Runtime) -> None:
    release(rt, "w1", [("a", stage.given["a"].token)], "shutdown")


@scene(_limited_work)
def losing_a_child(stage: Stage, rt: Runtime) -> None:
    lapse(rt, "w1", "a", stage.given["a"].token, "signal 9")
