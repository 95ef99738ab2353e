"""Random lives of a store: producers, workers that die or come back as zombies, sweepers, people who steer, a broker
that loses, doubles and replays. After each step the invariants hold; at the end every accepted task still ends."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from argus_celery.errors import BadTask, LeaseLost, ProjectClosed, StoreUnavailable
from argus_celery.flow import deliver, steer
from argus_celery.flow.claim import adopt, claim
from argus_celery.flow.complete import complete, complete_many
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.lapse import lapse
from argus_celery.flow.link import add_after
from argus_celery.flow.mend import mend
from argus_celery.flow.release import release
from argus_celery.flow.renew import renew
from argus_celery.flow.restore import restore, sweep
from argus_celery.flow.retry import retry
from argus_celery.flow.revive import Knowledge, retry_failed
from argus_celery.flow.revoke import meet, revoke
from argus_celery.flow.suspend import Wait, suspend
from argus_celery.flow.tell import tell
from argus_celery.flow.transaction import transaction
from argus_celery.flow.verdict import decide
from argus_celery.records import (
    QUEUE,
    Claim,
    Delivery,
    Dispatch,
    HolderFacts,
    NewTask,
    Outcome,
    ProjectStatus,
    TaskState,
)
from argus_celery.store import reports
from argus_celery.store.schema import leases, projects, tasks
from tests.invariants import History, check_all_ended
from tests.model.worlds import Known, World
from tests.store.bench import new_task

PROJECTS = ("alpha", "beta")
HOLDERS = ("w1", "w2", "w3")
QUEUES = ("celery", "slow")
EVENTS = ("e1", "e2", "e3", "e4")

some = st.integers(0, 1_000_000)
"""Which one of what there is."""
rarely = st.sampled_from((True, *(False,) * 9))
sometimes = st.sampled_from((True, False, False))
delays = st.sampled_from((0, 0, 0, 2_000, 20_000))

AS_USUAL = Knowledge(lambda name: None, lambda message: ())

Step = TypeVar("Step", bound=Callable[..., None])


def when(possible: Callable[[Any], object]) -> Callable[[Step], Step]:
    """Skip the step where it makes no sense. No precondition: hypothesis wants the same choices in each run."""

    def guard(step: Step) -> Step:
        @functools.wraps(step)
        def guarded(self: Any, *args: Any, **given: Any) -> None:
            if possible(self):
                step(self, *args, **given)

        return guarded  # type: ignore[return-value]

    return guard


def with_work(step: Step) -> Step:
    """A step of a worker: where none has a claim in hand, work comes first. Else most of these steps would be idle."""

    @functools.wraps(step)
    def guarded(self: Any, *args: Any, **given: Any) -> None:
        if not any(self.in_hand.values()):
            self.work_comes()
        if any(self.in_hand.values()):
            step(self, *args, **given)

    return guarded  # type: ignore[return-value]


class Protocol(RuleBasedStateMachine):
    url: ClassVar[str]

    @initialize()
    def open_store(self) -> None:
        self.world = World(self.url)
        self.numbers = itertools.count(1)
        self.history = History(self.world.store)
        self.known: dict[str, Known] = {}
        self.marked: set[str] = set()
        """Ids that were revoked before there was a task."""
        self.last = 0
        self.in_hand: dict[str, list[Claim]] = {holder: [] for holder in HOLDERS}
        self.told: set[tuple[str, str]] = set()
        for name in PROJECTS:
            steer.open_project(self.world.rt, name)

    # --- producers ---------------------------------------------------------------------------------------------

    @rule(
        project=st.sampled_from(PROJECTS), queue=st.sampled_from(QUEUES), key=st.sampled_from((None, None, "k1", "k2")),
        delay=delays, expires=st.sampled_from((None, None, 5_000)), priority=st.integers(0, 1),
        after=st.lists(some, max_size=2), regardless=sometimes,
        unlucky=rarely, fault=st.sampled_from((None, None, "refuses", "loses", "doubles")),
    )  # fmt: skip
    def enqueue(self, project: str, queue: str, unlucky: bool, fault: str | None, **more: Any) -> None:
        task = self._new(project, queue, more)
        rt = self.world.process(unlucky=False)
        if unlucky:
            self.world.unlucky.window.note(self.world.unlucky_store, [task])
            steer.open_project(self.world.unlucky, project)
            rt = self.world.process(unlucky=True)
        self._break_broker(fault)
        before = self.world.now()
        try:
            (enqueued,) = enqueue(rt, [task])
        except ProjectClosed:
            assert self._status(project) is not ProjectStatus.OPEN
            return
        except StoreUnavailable:
            raise AssertionError("the store was back, and enqueue did not look") from None
        finally:
            self.world.fortune()
        if enqueued.task_id == task.id:
            assert self._status(project) is ProjectStatus.OPEN
            expires = None if task.expires_in_ms is None else self.world.now() + task.expires_in_ms
            known = Known(project, task.message, before + (task.delay_ms or 0), expires)
            known.after = () if task.regardless else task.after
            self.known[task.id] = known
            self._note_ended()
        else:
            assert self.known[enqueued.task_id].project == project

    @rule(project=st.sampled_from(PROJECTS), again=rarely)
    def adopt_a_message_without_token(self, project: str, again: bool) -> None:
        task = self._new(project, "celery", {})
        try:
            token = adopt(self.world.rt, task)
        except ProjectClosed:
            assert self._status(project) is not ProjectStatus.OPEN
            return
        self.known[task.id] = Known(project, task.message)
        if token:
            self.world.broker.queue.append(Dispatch(task.id, token, task.message))
        if again:
            assert adopt(self.world.rt, task) == 0

    def _new(self, project: str, queue: str, more: dict[str, Any]) -> NewTask:
        self.last = next(self.numbers)
        task_id = f"task-{self.last}"
        given = {"delay_ms": more.get("delay"), "expires_in_ms": more.get("expires")}
        parents = [task_id for task_id, known in self.known.items() if known.project == project]
        after = [parents[which % len(parents)] for which in more.get("after", ()) if parents]
        given |= {"after": tuple(after), "regardless": more.get("regardless", False)}
        return new_task(
            id=task_id, body=task_id.encode(), queue=queue, project=project,
            key=more.get("key"), priority=more.get("priority", 0), **given,
        )  # fmt: skip

    # --- the broker and the workers ------------------------------------------------------------------------------

    @rule(which=some, holder=st.sampled_from(HOLDERS), keep=sometimes, unlucky=rarely)
    @when(lambda self: self.world.broker.ever)
    def deliver(self, which: int, holder: str, keep: bool, unlucky: bool) -> None:
        """A message of the queue, or any that was ever in it."""
        queue = self.world.broker.queue
        if queue and not keep:
            message = queue.pop(which % len(queue))
        else:
            message = self.world.broker.ever[which % len(self.world.broker.ever)]
        self._claim(holder, [message], unlucky)

    @rule(holder=st.sampled_from(HOLDERS))
    @when(lambda self: self.world.broker.queue)
    def deliver_all(self, holder: str) -> None:
        batch, self.world.broker.queue[:] = list(self.world.broker.queue), []
        self._claim(holder, batch, unlucky=False)

    @rule()
    @when(lambda self: self.world.broker.queue)
    def flush_the_broker(self) -> None:
        self.world.broker.queue.clear()

    def work_comes(self) -> None:
        for project in PROJECTS:
            self.enqueue(project=project, queue="celery", unlucky=False, fault=None)
        self.deliver_all("w1")

    def _claim(self, holder: str, batch: list[Dispatch], unlucky: bool) -> None:
        rt = self.world.process(unlucky=unlucky)
        deliveries = [Delivery(one.task_id, one.token) for one in batch]
        before = self.world.now()
        granted = claim(rt, holder, deliveries)
        self.world.fortune()
        answers = list(zip(batch, granted, strict=True))
        for message, one in answers:
            if one is not None:
                self._check_grant(message, one, before)
                self.in_hand[holder].append(one)
        for message, one in answers:
            if one is None:
                self._check_refusal(message)
        for task_id in meet(rt, [delivery for delivery, one in zip(deliveries, granted, strict=True) if one is None]):
            self.known[task_id].ended = True
            assert self.world.row(task_id, tasks).outcome == TaskState.CANCELLED

    def _check_refusal(self, message: Dispatch) -> None:
        row = self.world.row(message.task_id, leases)
        held = row is not None and row.holder > QUEUE
        assert not held or row.token <= self.known[message.task_id].newest, "refused and granted all the same"

    def _check_grant(self, message: Dispatch, granted: Claim, before: int) -> None:
        known = self.known[message.task_id]
        assert granted.token == message.token + 1
        assert granted.token > known.newest, "a token was granted twice"
        assert not known.ended, "an ended task was granted"
        assert granted.task_id not in self.marked, "a revoked task was granted"
        assert message.message == known.message, "not the message stored last"
        parents = [self.world.row(parent, tasks).outcome for parent in known.after]
        assert set(parents) <= {TaskState.SUCCEEDED}, f"granted before what it comes after: {parents}"
        assert self._goes_on(known.project), "granted in a project that does not go on"
        assert self.world.now() >= known.not_before, "granted before it was due"
        assert known.awaits is None or (known.project, known.awaits) in self.told, "granted before its event was told"
        assert known.expires is None or before < known.expires, "granted after it had expired"
        known.newest = granted.token

    @rule(
        which=some, failed=st.booleans(), follow=st.integers(0, 2), owed=rarely, unlucky=rarely,
        fault=st.sampled_from((None, None, "refuses", "loses")),
    )  # fmt: skip
    @with_work
    def complete(self, which: int, failed: bool, follow: int, owed: bool, unlucky: bool, fault: str | None) -> None:
        one = self._any_claim(which)
        stands, known = self._stands(one), self.known[one.task_id]
        children = tuple(self._new(known.project, "celery", {}) for _ in range(follow))
        children = tuple(_inside(child, one) for child in children)
        outcome = Outcome(
            TaskState.FAILED if failed else TaskState.SUCCEEDED,
            b"r",
            "broke" if failed else None,
            undelivered=owed,
            continuations=children,
        )
        self.world.unlucky.window.note(self.world.unlucky_store, children)
        self._break_broker(fault)
        lost = self._lost(lambda: complete(self.world.process(unlucky=unlucky), one, outcome))
        self.world.fortune()
        assert lost != stands
        self._note_ended()
        if stands:
            assert known.ended
            self._check_children(known.project, children)
        else:
            assert all(self.world.row(child.id, tasks) is None for child in children)

    @rule(holder=st.sampled_from(HOLDERS))
    @with_work
    def complete_all(self, holder: str) -> None:
        claims, self.in_hand[holder] = self.in_hand[holder], []
        if claims:
            stand = [self._stands(one) for one in claims]
            assert complete_many(self.world.rt, [(one, Outcome(TaskState.SUCCEEDED)) for one in claims]) == stand
            self._note_ended()
            assert all(self.known[one.task_id].ended for one, stood in zip(claims, stand, strict=True) if stood)

    def _check_children(self, project: str, children: tuple[NewTask, ...]) -> None:
        happens = self._status(project).live
        for child in children:
            assert (self.world.row(child.id, tasks) is not None) == happens
            if happens:
                self.known[child.id] = Known(project, child.message)

    @rule(which=some, delay=delays, queue=st.sampled_from((*QUEUES, "other")), expires=st.booleans(), unlucky=rarely)
    @with_work
    def retry(self, which: int, delay: int, queue: str, expires: bool, unlucky: bool) -> None:
        one = self._any_claim(which)
        stands, known = self._stands(one), self.known[one.task_id]
        again = new_task(id=one.task_id, body=f"retry-{next(self.numbers)}".encode(), queue=queue, delay_ms=delay)
        again = replace(again, expires_as_before=expires)
        self.world.unlucky.window.note(self.world.unlucky_store, [again])
        before = self.world.now()
        lost = self._lost(lambda: retry(self.world.process(unlucky=unlucky), one, again, "once more"))
        self.world.fortune()
        assert lost != stands
        if stands:
            known.message, known.not_before = again.message, before + delay
            known.expires = known.expires if expires else None
            known.ended = not self._status(known.project).live

    @rule(
        which=some, event=st.sampled_from((None, *EVENTS)), until=st.sampled_from((None, 2_000, 20_000)), unlucky=rarely
    )
    @with_work
    def wait(self, which: int, event: str | None, until: int | None, unlucky: bool) -> None:
        """For an event, for ever or until an instant; or just until that."""
        one = self._any_claim(which)
        stands, known = self._stands(one), self.known[one.task_id]
        instant = None if event and until is None else self.world.now() + (until or 2_000)
        wait = Wait(f"wait {event}", event, until=instant)
        lost = self._lost(lambda: suspend(self.world.process(unlucky=unlucky), one, wait))
        self.world.fortune()
        assert lost != stands
        if stands:
            known.ended = not self._status(known.project).live
            known.expires, known.awaits = None, event if instant is None else None
            known.not_before = instant if event is None and instant is not None else 0

    @rule(which=some, event=st.sampled_from(EVENTS))
    @with_work
    def decide_a_wait(self, which: int, event: str) -> None:
        one = self._any_claim(which, keep=True)
        stands = self._stands(one)
        assert self._lost(lambda: decide(self.world.rt, one, f"wait {event}", event, 0)) != stands

    @rule(
        project=st.sampled_from(PROJECTS), event=st.sampled_from(EVENTS), fault=st.sampled_from((None, None, "loses"))
    )
    def tell(self, project: str, event: str, fault: str | None) -> None:
        self._break_broker(fault)
        try:
            assert tell(self.world.rt, project, event, b"p") == ((project, event) not in self.told)
        except ProjectClosed:
            assert not self._status(project).live
        else:
            self.told.add((project, event))
        self.world.fortune()

    @rule(holder=st.sampled_from(HOLDERS))
    @with_work
    def renew(self, holder: str) -> None:
        claims = self.in_hand[holder]
        stand = {(one.task_id, one.token) for one in claims if self._stands(one)}
        for task_id, token in list(stand):
            if self._status(self.known[task_id].project) is ProjectStatus.CANCELLED:
                stand.remove((task_id, token))
                self.known[task_id].ended = True
        renewal = renew(self.world.rt, holder, [(one.task_id, one.token) for one in claims])
        assert renewal.held == stand
        assert renewal.lost == {(one.task_id, one.token) for one in claims} - stand
        self._note_ended()

    @rule(which=some)
    @with_work
    def write_through_the_fence(self, which: int) -> None:
        one = self._any_claim(which, keep=True)
        with_claim = self._stands(one)
        assert self._lost(lambda: self._write(one)) != with_claim

    def _write(self, one: Claim) -> None:
        with transaction(self.world.rt, one) as connection:
            connection.exec_driver_sql("SELECT 1")

    @rule(holder=st.sampled_from(HOLDERS), delay=delays)
    @with_work
    def stop_warmly(self, holder: str, delay: int) -> None:
        claims, self.in_hand[holder] = self.in_hand[holder], []
        stand = {one.task_id for one in claims if self._stands(one)}
        released = release(self.world.rt, holder, [(one.task_id, one.token) for one in claims], "shutdown", delay)
        assert set(released) == stand

    @rule(which=some)
    @with_work
    def lose_a_child(self, which: int) -> None:
        one = self._any_claim(which)
        stands = self._stands(one)
        state = lapse(self.world.rt, one.holder, one.task_id, one.token, "signal 9")
        assert (state is not None) == stands
        self._note_ended()
        assert self.known[one.task_id].ended or state is None or not state.ended

    @rule(holder=st.sampled_from(HOLDERS), proven=st.booleans())
    @with_work
    def die(self, holder: str, proven: bool) -> None:
        """The whole worker; its successor may prove it. Dead workers write nothing, zombies are in other rules."""
        for rank, name in enumerate(HOLDERS):
            restore(self.world.rt, _facts(name, rank), lambda facts: False)
        self.in_hand[holder] = []
        if proven:
            restore(self.world.rt, _facts("w9", 9), lambda facts: facts.id == holder)
            assert not any(row.holder == holder for row in self._running())

    # --- time, sweepers, people ---------------------------------------------------------------------------------

    @rule(milliseconds=st.sampled_from((500, 2_500, 7_000, 40_000)))
    def pass_time(self, milliseconds: int) -> None:
        self.world.pass_time(milliseconds)

    @rule(limit=st.sampled_from((1, 500)), fault=st.sampled_from((None, None, "refuses", "loses")), unlucky=rarely)
    def dispatch(self, limit: int, fault: str | None, unlucky: bool) -> None:
        self._break_broker(fault)
        try:
            dispatch(self.world.process(unlucky=unlucky), limit)
        except StoreUnavailable:
            assert unlucky
        finally:
            self.world.fortune()
        self._note_ended()

    @rule()
    def sweep_twice(self) -> None:
        while (report := sweep(self.world.rt)).more and (report.dispatched or report.ended or report.lapsed):
            pass
        again = sweep(self.world.rt)
        assert not again.lapsed
        assert not again.dispatched
        self._note_ended()

    @rule()
    def pay_debts(self) -> None:
        for debt in deliver.pending(self.world.rt):
            assert deliver.done(self.world.rt, debt.task_id, debt.token, ())
            assert not deliver.done(self.world.rt, debt.task_id, debt.token, ())

    @rule(which=some, in_advance=sometimes)
    def revoke(self, which: int, in_advance: bool) -> None:
        ahead = f"task-{self.last + 1 + which % 4}"
        task_id = ahead if in_advance or not self.known else list(self.known)[which % len(self.known)]
        alive, is_known = self.world.row(task_id, leases) is not None, self.world.row(task_id, tasks) is not None
        done = revoke(self.world.rt, [task_id])
        assert (task_id in done.ended, task_id in done.kept) == (alive, not is_known)
        if not is_known:
            self.marked.add(task_id)
        self._note_ended()

    @rule(project=st.sampled_from(PROJECTS))
    def pause(self, project: str) -> None:
        try:
            steer.pause(self.world.rt, project)
        except ProjectClosed:
            assert not self._status(project).live

    @rule(project=st.sampled_from(PROJECTS))
    def resume(self, project: str) -> None:
        steer.resume(self.world.rt, project)

    @rule(project=st.sampled_from(PROJECTS), really=sometimes)
    @when(lambda self: len(self.known) > 3)
    def close(self, project: str, really: bool) -> None:
        if really:
            steer.close(self.world.rt, project)

    @rule(project=st.sampled_from(PROJECTS), really=sometimes)
    @when(lambda self: len(self.known) > 3)
    def cancel(self, project: str, really: bool) -> None:
        if really:
            steer.cancel(self.world.rt, project)
            self._note_ended()

    @rule(which=some, parents=st.lists(some, min_size=1, max_size=2))
    @when(lambda self: len(self.known) > 3)
    def give_more_to_wait_for(self, which: int, parents: list[int]) -> None:
        ids = list(self.known)
        task_id, *after = (ids[one % len(ids)] for one in (which, *parents))
        known, before = self.known[task_id], self.world.row(task_id, leases)
        try:
            add_after(self.world.rt, known.project, task_id, after)
        except BadTask:
            assert self.world.row(task_id, leases) == before
            return
        assert before is not None
        assert before.holder in ("", QUEUE)
        known.after += tuple(after)
        self._note_ended()

    @rule()
    def mend(self) -> None:
        while mend(self.world.rt):
            pass
        self._note_ended()

    @rule(project=st.sampled_from(PROJECTS), unlucky=rarely)
    def put_back_what_failed(self, project: str, unlucky: bool) -> None:
        failed, given_up = self._failed(project)
        self.history.revived |= failed | given_up
        try:
            put_back = set(retry_failed(self.world.process(unlucky=unlucky), project, AS_USUAL))
        except ProjectClosed:
            assert self._status(project) is ProjectStatus.CANCELLED
            return
        except StoreUnavailable:
            assert unlucky
            self.world.fortune()
            put_back = set(retry_failed(self.world.process(unlucky=False), project, AS_USUAL))
        self.world.fortune()
        assert put_back == failed
        self.marked -= put_back
        for task_id in failed | given_up:
            alive = self.world.row(task_id, leases) is not None
            assert alive or task_id in given_up or self.known[task_id].after, "it was put back"
            if alive:
                self.known[task_id].ended, self.known[task_id].expires = False, None
        self._note_ended()

    def _failed(self, project: str) -> tuple[set[str], set[str]]:
        """By themselves, and for what they come after."""
        ended = (projects.c.name == project, tasks.c.outcome.in_(("failed", "dead", "expired")))
        query = sa.select(tasks.c.id, tasks.c.abandoned).join(projects, projects.c.id == tasks.c.project_id)
        rows = self.world.store.statement(lambda connection: connection.execute(query.where(*ended)).all())
        return {row.id for row in rows if not row.abandoned}, {row.id for row in rows if row.abandoned}

    # --- what holds ----------------------------------------------------------------------------------------------

    @invariant()
    def the_store_keeps_its_word(self) -> None:
        if hasattr(self, "history"):
            self.history.check()

    def teardown(self) -> None:
        """No task is lost: with everybody alive and time enough, all end, and closed projects are completed."""
        if not hasattr(self, "world"):
            return
        try:
            self._drain()
        finally:
            self.world.close()

    def _drain(self) -> None:
        for name in PROJECTS:
            steer.resume(self.world.rt, name)
            steer.close(self.world.rt, name)
            for event in EVENTS:
                self.tell(project=name, event=event, fault=None)
        for _ in range(60):
            self.world.pass_time(40_000)
            self.deliver_all("w1")
            self.complete_all("w1")
            while (report := sweep(self.world.rt)).more and (report.dispatched or report.ended or report.lapsed):
                pass
            mend(self.world.rt)
            if not self._alive():
                break
        self.pay_debts()
        sweep(self.world.rt)
        self.history.check()
        check_all_ended(self.world.store, self.history.revived)
        assert all(not self._status(name).live for name in PROJECTS)
        assert all(self.world.row(task_id, tasks) is not None for task_id in self.known)

    # --- reading -------------------------------------------------------------------------------------------------

    def _any_claim(self, which: int, keep: bool = False) -> Claim:
        """One that a worker has in hand, be it still good or a zombie's."""
        claims = [one for holder in HOLDERS for one in self.in_hand[holder]]
        one = claims[which % len(claims)]
        if not keep:
            self.in_hand[one.holder].remove(one)
        return one

    def _stands(self, one: Claim) -> bool:
        row = self.world.row(one.task_id, leases)
        stands = row is not None and (row.token, row.holder) == (one.token, one.holder)
        assert not stands or one.token == self.known[one.task_id].newest, "an older token still stands"
        return stands

    def _lost(self, call: Any) -> bool:
        try:
            call()
        except LeaseLost:
            return True
        return False

    def _break_broker(self, fault: str | None) -> None:
        if fault:
            setattr(self.world.broker, fault, True)

    def _status(self, project: str) -> ProjectStatus:
        info = reports.project_info(self.world.store, project)
        assert info is not None
        return info.status

    def _goes_on(self, project: str) -> bool:
        query = projects.select().where(projects.c.name == project)
        row = self.world.store.statement(lambda c: c.execute(query).one())
        return ProjectStatus(row.status).live and row.paused_at is None

    def _running(self) -> list[Any]:
        query = leases.select().where(leases.c.holder > "queue")
        return self.world.store.statement(lambda c: list(c.execute(query)))

    def _alive(self) -> bool:
        return self.world.store.statement(lambda c: c.execute(leases.select().limit(1)).first()) is not None

    def _note_ended(self) -> None:
        ended = tasks.select().where(tasks.c.outcome.is_not(None))
        for row in self.world.store.statement(lambda c: list(c.execute(ended))):
            self.known[row.id].ended = True


def _inside(child: NewTask, parent: Claim) -> NewTask:
    return new_task(
        id=child.id, body=child.message.body, project_id=parent.project_id, inside=True, parent_id=parent.task_id
    )


def _facts(holder: str, pid: int) -> HolderFacts:
    return HolderFacts(holder, f"celery@{holder}", "host", pid, "boot", "namespace", "0")
