"""Rule 7: the message stored last is replayed byte for byte, with the same task id; only the token differs."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from dataclasses import replace

from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import enqueue
from argus_celery.flow.release import release
from argus_celery.flow.retry import retry
from argus_celery.records import Message, NewTask
from tests.flow.conftest import FlowBench
from tests.store.bench import new_task


def rich(task_id: str) -> NewTask:
    """A message with all that headers and bodies may carry."""
    headers = {
        "id": task_id,
        "eta": dt.datetime(2026, 11, 30, 6, 7, 8, tzinfo=dt.UTC),
        "argus_token": 99,
        "nested": {"list": [1, 2.5, None, True, "ünïcode ☃"], "uuid": uuid.UUID(int=7)},
        "price": decimal.Decimal("1.10"),
    }
    body = bytes(range(256)) + "☃".encode()
    message = Message(
        body, "application/x-python-serialize", "binary", headers, {"priority": 3}, "ex", "key.#", "celery"
    )
    return NewTask(id=task_id, name="shop.charge", message=message)


def test_every_replay_is_the_message_as_it_was_handed_in(bench: FlowBench) -> None:
    task = rich("a")
    enqueue(bench.rt, [task])
    bench.pass_time(3.1)
    dispatch(bench.rt)
    claim = bench.claim("w1", "a")
    assert claim is not None
    bench.pass_time(7)
    dispatch(bench.rt)
    again = bench.claim("w1", "a")
    assert again is not None
    release(bench.rt, "w1", [("a", again.token)], "shutdown")
    assert [one.message for one in bench.sent] == [task.message] * 4
    assert [one.task_id for one in bench.sent] == ["a"] * 4
    assert [one.token for one in bench.sent] == [1, 1, 3, 5]


def test_after_a_retry_the_new_message_is_the_one_that_is_replayed(bench: FlowBench) -> None:
    claim = bench.running()
    new = replace(new_task(id=claim.task_id, body=b"retries=1"), name="shop.charge_again")
    retry(bench.rt, claim, new)
    again = bench.claim("w1", claim.task_id)
    assert again is not None
    bench.pass_time(7)
    dispatch(bench.rt)
    assert [one.message for one in bench.sent[-2:]] == [new.message] * 2
    assert bench.task(claim.task_id).name == "shop.charge_again"
