"""``durable`` on every kind of task, wherever the decorator stands, and next to the user's own annotations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery, Task, shared_task
from pydantic import BaseModel

from argus_celery import Argus, durable
from argus_celery.hooks.durable import is_durable, options_of
from argus_celery.hooks.trace import SLOT
from tests.integration.embedded import Shop, shop

pytestmark = pytest.mark.redis


@pytest.fixture
def bench(sqlite_store_url: str, redis_broker: str) -> Iterator[Shop]:
    made = shop(sqlite_store_url, redis_broker)
    made.app.set_current()
    yield made
    made.app.close()


class Base(Task):
    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, **kwargs)


class Order(BaseModel):
    number: int


def _above(app: Celery) -> Any:
    @durable
    @app.task(shared=False, name="shop.kind")
    def kind(x: int) -> int:
        return x + 1

    return kind


def _below(app: Celery) -> Any:
    @app.task(shared=False, name="shop.kind")
    @durable(lease_ttl=120, max_losses=3)
    def kind(x: int) -> int:
        return x + 1

    return kind


def _eager_registration(app: Celery) -> Any:
    @durable
    @app.task(shared=False, name="shop.kind", lazy=False)
    def kind(x: int) -> int:
        return x + 1

    return kind


def _custom_base(app: Celery) -> Any:
    @durable
    @app.task(shared=False, name="shop.kind", base=Base, bind=True)
    def kind(self: Any, x: int) -> int:
        return x + 1

    return kind


def _class_based(app: Celery) -> Any:
    @durable
    class Kind(Task):
        name = "shop.kind"

        def run(self, x: int) -> int:
            return x + 1

    return app.register_task(Kind())


def _pydantic(app: Celery) -> Any:
    @app.task(shared=False, name="shop.kind", pydantic=True)
    @durable
    def kind(order: Order) -> int:
        return order.number + 1

    return kind


def _autoretry(app: Celery) -> Any:
    @app.task(shared=False, name="shop.kind", autoretry_for=(OSError,), bind=True, default_retry_delay=0)
    @durable
    def kind(self: Any, x: int) -> int:
        if not self.request.retries:
            raise OSError("once")
        return x + 1

    return kind


def _shared_above(app: Celery) -> Any:
    @durable
    @shared_task(name="shop.kind")
    def kind(x: int) -> int:
        return x + 1

    return app.tasks["shop.kind"]


def _shared_below(app: Celery) -> Any:
    @shared_task(name="shop.kind")
    @durable
    def kind(x: int) -> int:
        return x + 1

    return app.tasks["shop.kind"]


def _late(app: Celery) -> Any:
    app.finalize()
    return _above(app)


def _late_shared(app: Celery) -> Any:
    app.finalize()
    return _shared_above(app)


def _marked_when_used(app: Celery) -> Any:
    @app.task(shared=False, name="shop.kind")
    def kind(x: int) -> int:
        return x + 1

    assert kind(1) == 2
    return durable(kind)


def _by_pattern(app: Celery) -> Any:
    app.conf.argus_durable_tasks = ["shop.*"]

    @app.task(shared=False, name="shop.kind")
    def kind(x: int) -> int:
        return x + 1

    return kind


KINDS = [
    _above,
    _below,
    _eager_registration,
    _custom_base,
    _class_based,
    _pydantic,
    _autoretry,
    _shared_above,
    _shared_below,
    _late,
    _late_shared,
    _marked_when_used,
    _by_pattern,
]


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__.strip("_"))
def test_a_durable_task_of_any_kind_is_recorded_claimed_and_completed(
    bench: Shop, make: Callable[[Celery], Any]
) -> None:
    task = make(bench.app)
    result = task.delay({"number": 1} if make is _pydantic else 1)
    assert bench.names() == ["kind"]
    with bench.worker():
        assert result.get(timeout=20) == 2
    assert bench.task(result.id).token >= 2, "it was claimed"


def test_options_of_the_decorator_reach_the_lease(bench: Shop) -> None:
    result = _below(bench.app).delay(1)
    assert bench.lease(result.id).ttl == 120_000
    assert bench.rows()[result.id].max_losses == 3
    assert options_of(bench.app.tasks["shop.kind"]).max_losses == 3


def test_annotations_of_the_user_keep_working(bench: Shop) -> None:
    bench.app.conf.task_annotations = {"shop.kind": {"rate_limit": "7/s"}, "*": {"time_limit": 44}}
    _above(bench.app)
    task = bench.app.tasks["shop.kind"]
    assert (task.rate_limit, task.time_limit) == ("7/s", 44)
    assert type(task).__dict__["__trace__"] is SLOT


def test_builtin_and_undecorated_tasks_are_left_alone(bench: Shop) -> None:
    bench.app.conf.argus_durable_tasks = ["*"]
    bench.app.finalize()
    builtin = [task for name, task in bench.app.tasks.items() if name.startswith("celery.")]
    assert builtin
    assert not any(is_durable(task) for task in builtin)
    assert not is_durable(bench.app.tasks["argus.sweep"])


def test_argus_can_be_added_to_an_app_that_is_in_use(sqlite_store_url: str, redis_broker: str) -> None:
    app = Celery("used", broker=redis_broker, backend="cache+memory://", set_as_current=False)
    kind = _above(app)
    assert kind(1) == 2
    app.send_task("shop.other")  # makes the AMQP object and a connection
    argus = Argus(app, store=sqlite_store_url)
    made = Shop(app, argus)
    result = kind.delay(1)
    argus.check()
    with made.worker():
        assert made.ended(result.id).state == "succeeded"
