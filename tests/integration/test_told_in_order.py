"""What the user's result backend is told of a chord: its header before anything of its body, and the body once."""

from __future__ import annotations

from typing import Any

import pytest
from celery import chord
from celery.backends.redis import RedisBackend

from tests.integration.embedded import shop, until

told: list[tuple[str, str]] = []


class NotingBackend(RedisBackend):  # type: ignore[misc]
    def store_result(self, task_id: str, result: Any, state: str, *args: Any, **options: Any) -> Any:
        told.append((task_id, state))
        return super().store_result(task_id, result, state, *args, **options)


@pytest.mark.parametrize("fails", [False, True])
def test_the_header_is_told_before_the_body_and_the_body_once(
    sqlite_store_url: str, redis_broker: str, fails: bool
) -> None:
    backend = f"{__name__}:NotingBackend+{redis_broker}"
    bench = shop(sqlite_store_url, redis_broker, backend, durable_tasks=["*"])

    @bench.app.task(shared=False, name="shop.part")
    def part(number: int) -> int:
        if fails and number == 2:
            raise ValueError("no")
        return number

    @bench.app.task(shared=False, name="shop.body")
    def body(numbers: list[int]) -> int:
        return sum(numbers)

    @bench.app.task(shared=False, name="shop.errback")
    def errback(task_id: str) -> str:
        return task_id

    told.clear()
    with bench.worker():
        result = chord([part.s(1), part.s(2)], body.s().on_error(errback.s())).delay()
        if fails:
            with pytest.raises(ValueError, match="no"):
                result.get(timeout=20)
            # It is told before the errback is recorded.
            until(lambda: len(bench.rows()) == 3)
        else:
            assert result.get(timeout=20) == 3
        bench.drained()
    order = [task_id for task_id, _ in told]
    assert max(order.index(member.id) for member in result.parent) < order.index(result.id)
    assert order.count(result.id) == 1
    if fails:
        [errbacks] = result.children
        assert errbacks.children[0].get(timeout=20) == result.id
