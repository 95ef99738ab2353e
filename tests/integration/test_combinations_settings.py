"""What needs an app of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.combinations import Place, row
from tests.integration.embedded import until

pytestmark = pytest.mark.redis

TITLE = "Settings"


@row("`priority=` of tasks that wait", "those that the broker puts first run first (Redis: 0 before 9)")
def test_what_waits_goes_by_priority(another: Callable[..., Place]) -> None:
    place = another()
    task = place.task(lambda self, name: place.log.append(name))
    for name, priority in (("last", 9), ("middle", 3), ("first", 0)):
        place.send(task, name, priority=priority)
    with place.working(prefetch_multiplier=1):
        until(lambda: len(place.log) == 3)
    assert place.log == ["first", "middle", "last"]


@row("`task_always_eager`", "calls run in place, `retry` and links too; no row is written and nothing is sent")
def test_always_eager(another: Callable[..., Place]) -> None:
    place = another(task_always_eager=True)

    def body(self: Any, kind: str) -> str:
        if kind == "fails":
            raise ValueError("no")
        if self.request.retries == 0:
            raise self.retry(countdown=0)
        return "here"

    task = place.task(body)
    assert task.apply_async(("goes",), link=place.logger("after").s()).get() == "here"
    assert task.delay("fails").state == "FAILURE"
    assert place.log == [("after", "here")]
    assert place.rows() == 0


@row("`task_store_eager_result`", "the eager result goes to the result backend; no task is recorded")
def test_store_eager_result(another: Callable[..., Place]) -> None:
    place = another(task_always_eager=True, task_store_eager_result=True)
    result = place.task(lambda self, x: x + 1).delay(1)
    assert place.app.AsyncResult(result.id).get(timeout=5, disable_sync_subtasks=False) == 2
    assert place.rows() == (1 if place.embedded else 0)


@row("`serializer=`, `compression=`", "the arguments arrive as they were")
@pytest.mark.parametrize("serializer", ["json", "yaml", "msgpack"])
def test_serializer_and_compression(another: Callable[..., Place], serializer: str) -> None:
    place = another(accept_content=["json", "yaml", "msgpack"])
    task = place.task(lambda self, what: what)
    with place.working():
        for compression in (None, "zlib"):
            seen = place.run(task, {"a": [1, "ü"]}, serializer=serializer, compression=compression)
            assert seen.value == {"a": [1, "ü"]}
