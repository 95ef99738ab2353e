"""Sweepers and people, on rows in every state."""

from __future__ import annotations

from argus_celery.flow import configure, deliver, steer
from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.link import add_after
from argus_celery.flow.prune import Pruning
from argus_celery.flow.restart import restart
from argus_celery.flow.restore import restore, sweep
from argus_celery.flow.revive import Knowledge, retry_failed
from argus_celery.flow.revoke import revoke
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.suspend import Wait, suspend
from argus_celery.flow.tell import tell
from argus_celery.records import Bound, HolderFacts, Outcome, TaskState
from argus_celery.store.pruning import Ages
from tests.crashes.scenes import scene
from tests.crashes.stage import Stage
from tests.crashes.working import ONE, work_that_fails

AS_USUAL = Knowledge(lambda name: None, lambda message: ())
DAY = 24 * 3600 * 1000


# --- sweepers ------------------------------------------------------------------------------------------------------


def _all_that_is_due(stage: Stage) -> None:
    stage.run("running", "lost")
    stage.enqueue("lost message")
    stage.enqueue("late", delay_ms=2_000)
    stage.enqueue("expires", delay_ms=2_000, expires_in_ms=1_000)
    stage.enqueue("behind it", after=("expires",), regardless=True)
    for number in range(3):
        stage.enqueue(f"over the window {number}")
    steer.open_project(stage.rt, "closed")
    steer.close(stage.rt, "closed")
    stage.broker.fetch()
    stage.world.pass_time(7_000)


@scene(_all_that_is_due)
def dispatching(stage: Stage, rt: Runtime) -> None:
    dispatch(rt)


@scene(_all_that_is_due)
def sweeping(stage: Stage, rt: Runtime) -> None:
    sweep(rt)


def _work_of_the_dead(stage: Stage) -> None:
    stage.run("a", "b")
    stage.enqueue("in the broker")
    stage.broker.fetch()


@scene(_work_of_the_dead)
def restoring(stage: Stage, rt: Runtime) -> None:
    restore(rt, HolderFacts("w3", "celery@w3", "host", 3, "boot", "namespace", "0"), lambda facts: facts.id == "w1")


def _worn_out(stage: Stage) -> None:
    stage.run("a", max_losses=1)
    stage.enqueue("behind", after=("a",))
    stage.enqueue("regardless", after=("a",), regardless=True)
    stage.world.pass_time(7_000)


@scene(_worn_out)
def burying(stage: Stage, rt: Runtime) -> None:
    sweep(rt)


def _owing(stage: Stage) -> None:
    stage.run("a")
    complete(stage.rt, stage.given.pop("a"), Outcome(TaskState.FAILED, None, "broke", undelivered=True))


@scene(_owing, repeats=True)
def paying_a_debt(stage: Stage, rt: Runtime) -> None:
    for debt in deliver.pending(rt):
        errback = stage.task("errback", project_id=debt.project_id, inside=True)
        deliver.done(rt, debt.task_id, debt.token, [errback])


# --- people --------------------------------------------------------------------------------------------------------


def _all_states(stage: Stage) -> None:
    stage.run("running", limits=ONE)
    stage.enqueue("in the line", limits=ONE)
    stage.enqueue("in the broker")
    stage.enqueue("late", delay_ms=2_000)
    stage.enqueue("behind", after=("late",))


@scene(_all_states, repeats=True)
def cancelling(stage: Stage, rt: Runtime) -> None:
    steer.cancel(rt, "p")


@scene(_all_states, repeats=True)
def closing(stage: Stage, rt: Runtime) -> None:
    steer.close(rt, "p")


@scene(_all_states, repeats=True)
def pausing_and_resuming(stage: Stage, rt: Runtime) -> None:
    steer.pause(rt, "p")
    steer.resume(rt, "p")


@scene(_all_states, repeats=True)
def stopping(stage: Stage, rt: Runtime) -> None:
    steer.pause(rt, "p", stop=True)
    steer.resume(rt, "p")


def _cancelled(stage: Stage) -> None:
    _all_states(stage)
    steer.cancel(stage.rt, "p")


@scene(_cancelled, repeats=True)
def reopening(stage: Stage, rt: Runtime) -> None:
    steer.reopen(rt, "p")


@scene(_all_states, repeats=True)
def revoking(stage: Stage, rt: Runtime) -> None:
    revoke(rt, ["running", "in the line", "late", "not there yet"])


@scene(_all_states, repeats=True)
def linking(stage: Stage, rt: Runtime) -> None:
    add_after(rt, "p", "in the broker", ["late", "running"])


@scene(_all_states, repeats=True)
def limiting_a_project(stage: Stage, rt: Runtime) -> None:
    configure.configure(rt, "p", {"limit": Bound("project p", concurrency=1)})


def _waits_for_events(stage: Stage) -> None:
    stage.run("a", "b")
    for id_ in ("a", "b"):
        suspend(stage.rt, stage.given.pop(id_), Wait("wait", "e"))


@scene(_waits_for_events, repeats=True)
def telling(stage: Stage, rt: Runtime) -> None:
    tell(rt, "p", "e", b"payload")


def _failures(stage: Stage) -> None:
    work_that_fails(stage)
    stage.perform(stage.rt, stage.given.pop("a"))
    stage.bodies.clear()
    steer.close(stage.rt, "p")
    sweep(stage.rt)
    stage.history.revived |= {"a", "behind", "behind that"}


@scene(_failures, repeats=True)
def putting_back(stage: Stage, rt: Runtime) -> None:
    retry_failed(rt, "p", AS_USUAL)


def _what_is_done(stage: Stage) -> None:
    stage.run("a")
    stage.enqueue("behind", after=("a",))
    stage.perform(stage.rt, stage.given.pop("a"))
    stage.claim("behind")
    stage.perform(stage.rt, stage.given.pop("behind"))
    stage.history.restarted |= {"a", "behind"}


@scene(_what_is_done)
def restarting(stage: Stage, rt: Runtime) -> None:
    restart(rt, "p", "a", AS_USUAL)


def _what_is_old(stage: Stage) -> None:
    for name in ("ended", "p", "newest"):
        steer.open_project(stage.rt, name)
        stage.run(f"of {name}", project=name)
        stage.perform(stage.rt, stage.given.pop(f"of {name}"))
    steer.close(stage.rt, "ended")
    stage.world.pass_time(8 * DAY)


@scene(_what_is_old, repeats=True)
def pruning(stage: Stage, rt: Runtime) -> None:
    Pruning(rt, lambda: Ages(7 * DAY, 7 * DAY)).run_once()
