"""Ways to call a task, what its request says, and ways to make one."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from celery import Task, chord, group, signals, signature
from celery.beat import Scheduler
from celery.schedules import schedule

from tests.integration.combinations import SUCCEEDS, Place, row
from tests.integration.embedded import until

pytestmark = pytest.mark.redis

TITLE = "Calls, requests and task classes"


def _add(self: Any, x: int, y: int = 1) -> int:
    return x + y


@row("`delay`, `apply_async`, `s().apply_async`, `send_task` by name", "one run each")
def test_ways_to_call(place: Place) -> None:
    add = place.task(_add)
    calls = [add.delay(1), add.apply_async((1,), {"y": 2}), add.s(1).apply_async(), place.app.send_task(add.name, (4,))]
    assert [one.get(timeout=20) for one in calls] == [2, 3, 2, 5]
    assert [place.of(one.id).runs for one in calls] == [[0]] * 4


@row("`before_task_publish`, `after_task_publish`, `task_received`", "once per call and per retry")
def test_signals_of_sending(place: Place) -> None:
    def body(self: Any) -> None:
        if self.request.retries == 0:
            raise self.retry(countdown=0)

    task = place.task(body)
    seen: list[str] = []
    receivers = {
        "before_task_publish": lambda sender=None, **_: sender == task.name and seen.append("before"),
        "after_task_publish": lambda sender=None, **_: sender == task.name and seen.append("after"),
        "task_received": lambda request=None, **_: request.name == task.name and seen.append("received"),
    }
    for name, receiver in receivers.items():
        getattr(signals, name).connect(receiver, weak=False)
    try:
        place.run(task)
    finally:
        for name, receiver in receivers.items():
            getattr(signals, name).disconnect(receiver)
    assert sorted(seen) == ["after"] * 2 + ["before"] * 2 + ["received"] * 2


@row("a direct call: `task(…)`", "runs here, with no message; no row is written")
def test_a_direct_call(place: Place) -> None:
    before = place.rows()
    assert place.task(_add)(2) == 3
    assert place.rows() == before


@row("`apply()`, with retries", "runs here; no row is written")
def test_apply(place: Place) -> None:
    def body(self: Any) -> str:
        if self.request.retries < 2:
            raise self.retry(countdown=0)
        return "here"

    before = place.rows()
    result = place.task(body).apply()
    assert (result.state, result.get()) == ("SUCCESS", "here")
    assert place.rows() == before


@row("`task_id=`", "the result and the request bear it")
def test_a_task_id_of_ones_own(place: Place) -> None:
    mine = f"mine-{uuid.uuid4()}"
    seen = place.run(place.task(lambda self: self.request.id), task_id=mine)
    assert (seen.result.id, seen.value) == (mine, mine)


@row(
    "`task_id=` of a task that is there already",
    "runs again under the same id",
    "the first task stands: nothing runs again",
    "an id names one task, which has one outcome",
)
def test_a_task_id_twice(place: Place) -> None:
    task, mine = place.task(_add), f"twice-{uuid.uuid4()}"
    seen = place.run(task, 1, task_id=mine)
    task.apply_async((5,), task_id=mine)
    place.run(place.logger("marker"))
    assert seen.runs == place.either(ordinary=[0, 0], durable=[0])


@row(
    "`argus_key=`",
    "no option of Celery",
    "the caller's name for the work: a second call returns the first task",
    "a call that may have been made before can be repeated",
)
def test_an_idempotency_key(place: Place) -> None:
    task = place.task(_add)
    if place.either(ordinary=True, durable=False):
        return
    first, second = place.run(task, 1, argus_key="k"), place.send(task, 1, argus_key="k")
    assert first.result.id == second.result.id
    assert first.runs == [0]


@row("`shadow=`", "another name in logs and events; `request.shadow` has it")
def test_shadow(place: Place) -> None:
    assert place.run(place.task(lambda self: self.request.shadow), shadow="night").value == "night"


@row("`headers=`", "in `request.headers`, over retries too")
def test_headers(place: Place) -> None:
    def body(self: Any) -> Any:
        if self.request.retries == 0:
            raise self.retry(countdown=0)
        return (self.request.headers or {}).get("tenant")

    assert place.run(place.task(body), headers={"tenant": "north"}).value == "north"


@row("`producer=`, `connection=`, `retry=False`", "sent once, through what was given")
def test_a_producer_of_ones_own(place: Place) -> None:
    add = place.task(_add)
    with place.app.producer_pool.acquire(block=True) as producer:
        assert place.run(add, 1, producer=producer).value == 2
    with place.app.connection_for_write() as connection:
        assert place.run(add, 2, connection=connection).value == 3
    assert place.run(add, 3, retry=False).value == 4


@row("`add_to_parent=`, `children`", "what a body sends is in its result's children, unless told not to")
def test_children(place: Place) -> None:
    add = place.task(_add)

    def body(self: Any) -> list[str]:
        kept, left = add.delay(1), add.apply_async((2,), add_to_parent=False)
        return [kept.id, left.id]

    seen = place.run(place.task(body))
    assert [child.id for child in seen.result.children] == seen.value[:1]


@row("`request.root_id`, `parent_id`, `group`, `correlation_id`, `origin`", "say where the task comes from")
def test_where_a_task_comes_from(place: Place) -> None:
    leaf = place.task(lambda self: [self.request.root_id, self.request.parent_id, self.request.correlation_id])

    def body(self: Any) -> list[str]:
        return [leaf.delay().id]

    root = place.run(place.task(body))
    child = place.of(root.value[0])
    until(child.over)
    assert child.value == [root.result.id, root.result.id, child.result.id]
    grouped = place.task(lambda self: [self.request.group, "@" in self.request.origin])
    result = group(grouped.s(), grouped.s()).apply_async()
    assert result.get(timeout=20) == [[result.id, True]] * 2


_ordinary: dict[str, Any] = {}
"""The request of the ordinary task, which runs first."""
_OF_THE_DELIVERY = {"id", "root_id", "correlation_id", "reply_to", "origin", "hostname", "delivery_tag", "properties"}
_OF_THE_DELIVERY |= {"argus_token", "headers", "expires", "eta", "delivery_info", "argsrepr", "kwargsrepr", "task"}


@row("the whole of `task.request`", "the same fields with the same values, but for Argus's token")
def test_the_request(place: Place) -> None:
    def body(self: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        fields = {name: value for name, value in vars(self.request).items() if not name.startswith("_")}
        return {name: repr(value) for name, value in fields.items() if name not in _OF_THE_DELIVERY}

    options = {"time_limit": 30, "soft_time_limit": 20, "priority": 3, "headers": {"tenant": "north"}}
    after = place.logger("after")
    seen = place.run(place.task(body), 1, link_error=after.s(), y=2, stamped_headers=["who"], who="me", **options)
    told = {name: text.replace(after.name, "after") for name, text in seen.value.items()}
    if place.durable:
        assert told == (_ordinary or told)
    else:
        _ordinary.update(told)
    wanted = {"timelimit": "[30, 20]", "retries": "0", "is_eager": "False", "called_directly": "False"}
    wanted |= {"args": "[1]", "replaced_task_nesting": "0", "ignore_result": "False", "chord": "None", "group": "None"}
    assert {name: told.get(name) for name in wanted} == wanted


@row("`request.eta`, `request.expires`, `request.delivery_info`", "as they were sent")
def test_the_times_in_the_request(place: Place) -> None:
    def body(self: Any) -> list[Any]:
        info = self.request.delivery_info
        return [bool(self.request.eta), bool(self.request.expires), info["exchange"], info["routing_key"]]

    assert place.run(place.task(body), countdown=0.1, expires=60).value == [True, True, "", "celery"]


@row("stamps", "`request.stamps` and `request.stamped_headers` have them, over retries too")
def test_stamps(place: Place) -> None:
    def body(self: Any) -> Any:
        if self.request.retries == 0:
            raise self.retry(countdown=0)
        return [self.request.stamped_headers, self.request.stamps]

    signature = place.task(body).s()
    signature.stamp(who="me")
    seen = place.of(signature.apply_async().id)
    place.wait(seen)
    assert seen.value == [["who"], {"who": "me"}]


@row("`self.replace(sig)`", "the task goes on as another, under its id; `replaced_task_nesting` is one more; no retry")
def test_replace(place: Place) -> None:
    other = place.task(lambda self: [self.request.id, self.request.replaced_task_nesting, self.request.retries])
    seen = place.send(place.task(lambda self: self.replace(other.s())))
    place.wait(seen, seen.result.ready)
    assert seen.value == [seen.result.id, 1, 0]
    if place.durable:
        assert place.ended(seen).retries == 0


@row(
    "`Task.map`, `starmap`, `chunks`",
    "the results, in order; the body runs inside `celery.map`, `celery.starmap`",
    "the same, inside `argus.map`, `argus.starmap`",
    "these are durable, with the default options",
)
def test_map_starmap_and_chunks(place: Place) -> None:
    def plus(x: int, y: int = 1) -> int:
        return x + y

    add = place.declare(plus, name="calls.add")
    assert add.map([1, 2]).apply_async().get(timeout=20) == [2, 3]
    assert add.starmap([(1, 2), (3, 4)]).apply_async().get(timeout=20) == [3, 7]
    assert add.chunks([(1, 1), (2, 2), (3, 3)], 2).apply_async().get(timeout=20) == [[2, 4], [6]]
    before = place.rows()
    as_sent = json.loads(json.dumps(add.starmap([(4, 5)])))
    assert signature(as_sent, app=place.app).apply_async().get(timeout=20) == [9]
    assert place.rows() - before == place.either(ordinary=0, durable=1)


@row("`Task.subtask`, `signature_from_request`", "signatures as ever")
def test_subtask(place: Place) -> None:
    add = place.task(_add)
    assert add.subtask((1,), immutable=True).apply_async().get(timeout=20) == 2


@row("a chord of these tasks", "its body once, with the results in order")
def test_a_chord(place: Place) -> None:
    add, total = place.task(_add), place.task(lambda self, parts: sum(parts))
    assert chord([add.s(1), add.s(2)], total.s()).apply_async().get(timeout=20) == 5


@row("a beat entry (`add_periodic_task`)", "sent when it is due, with its options")
def test_a_beat_entry(place: Place) -> None:
    add = place.task(_add)
    place.app.conf.beat_schedule = {}
    place.app.add_periodic_task(schedule(0.01), add.s(41), name="every", priority=3)
    scheduler = Scheduler(place.app, lazy=True)
    scheduler.merge_inplace(place.app.conf.beat_schedule)
    result = scheduler.apply_async(scheduler.schedule["every"], advance=False)
    assert result.get(timeout=20) == 42


@row("a base class with state", "one instance per process: what a run leaves there, the next one finds")
def test_a_task_class_with_state(place: Place) -> None:
    class Counting(place.watched()):  # type: ignore[misc]
        abstract = True
        count = 0

    def body(self: Any) -> int:
        self.count += 1
        return int(self.count)

    task = place.task(body, base=Counting)
    assert [place.run(task).value for _ in range(2)] == [1, 2]


@row("a class-based task; an abstract one", "`run` is the body; an abstract class is no task")
def test_a_class_based_task(place: Place) -> None:
    class Base(Task):  # type: ignore[misc]
        abstract = True

        def double(self, x: int) -> int:
            return 2 * x

    class Doubling(Base):
        name = "calls.Doubling"

        def run(self, x: int) -> int:
            return self.double(x)

    from argus_celery import durable

    task = place.app.register_task((durable(Doubling) if place.durable else Doubling)())
    place.consumer.update_strategies()
    seen = place.send(task, 21)
    place.wait(seen, seen.over)
    assert seen.value == 42
    assert seen.signals == SUCCEEDS


@row("`__call__` of a base class", "wraps the body")
def test_a_class_that_wraps_its_call(place: Place) -> None:
    class Loud(place.watched()):  # type: ignore[misc]
        abstract = True

        def __call__(self, *args: Any, **kwargs: Any) -> str:
            return f"{self.run(*args, **kwargs)}!"

    assert place.run(place.task(lambda self: "hey", base=Loud)).value == "hey!"


@row(
    "arguments that do not fit; `typing=False`", "`TypeError` for the caller; with `typing=False` a failure of the run"
)
def test_typing(place: Place) -> None:
    def one(x: int) -> int:
        return x

    before = place.rows()
    with pytest.raises(TypeError):
        place.declare(one, name="calls.typed", typing=True).delay()
    assert place.rows() == before
    seen = place.send(place.declare(one, name="calls.untyped", typing=False))
    place.wait(seen, seen.result.ready)
    assert (seen.state, seen.error) == ("FAILURE", "TypeError")


@row("`pydantic=True`", "arguments are validated into models, and a model as result is dumped")
def test_pydantic(place: Place) -> None:
    pydantic = pytest.importorskip("pydantic")

    class Order(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        number: int

    def body(order: Order) -> Order:  # type: ignore[valid-type]
        return Order(number=order.number + 1)  # type: ignore[attr-defined]

    body.__annotations__ = {"order": Order, "return": Order}
    task = place.declare(body, name="calls.pydantic", pydantic=True)
    seen = place.send(task, {"number": 1})
    place.wait(seen, seen.result.ready)
    assert seen.value == {"number": 2}
