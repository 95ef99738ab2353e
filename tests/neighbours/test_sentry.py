"""Sentry's Celery integration: only a real failure is an error, and a trace goes on over a restore."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from argus_celery import current, durable
from argus_celery.records import TaskState
from tests.integration.embedded import Shop, until
from tests.neighbours.conftest import bodies, send_again

sentry_sdk = pytest.importorskip("sentry_sdk")
from sentry_sdk.integrations.celery import CeleryIntegration  # noqa: E402
from sentry_sdk.transport import Transport  # noqa: E402


class Kept(Transport):  # type: ignore[misc]
    """Keeps what would go to the server."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[tuple[str, Any]] = []

    def capture_envelope(self, envelope: Any) -> None:
        self.items += [(item.headers["type"], item.payload.json) for item in envelope.items]

    def errors(self) -> list[str]:
        return [one["exception"]["values"][-1]["value"] for kind, one in self.items if kind == "event"]

    def transactions(self) -> list[tuple[str, str]]:
        return [
            (one["transaction"], one["contexts"]["trace"]["trace_id"]) for k, one in self.items if k == "transaction"
        ]


@pytest.fixture
def kept() -> Iterator[Kept]:
    kept = Kept()
    client = sentry_sdk.Client(
        dsn="http://key@localhost/1", transport=kept, traces_sample_rate=1.0, integrations=[CeleryIntegration()]
    )
    sentry_sdk.get_global_scope().set_client(client)
    yield kept
    sentry_sdk.get_global_scope().set_client(None)


def test_sentry_hears_of_a_real_failure_once_and_of_nothing_else(made: Shop, kept: Kept) -> None:
    tasks = bodies(made)
    results = [tasks["again"].delay(), tasks["robbed"].delay("noticed"), tasks["robbed"].delay("unnoticed")]
    results += [tasks["add"].delay(1, 2)]
    failed = tasks["fail"].delay()
    send_again(made, lost=False)
    with made.worker():
        assert {made.ended(result.id).state for result in results} == {TaskState.SUCCEEDED}
        assert made.ended(failed.id).state is TaskState.FAILED
        made.drained()
    assert made.log.count((1, 2)) == 1
    assert kept.errors() == ["a real failure"]


def test_sentrys_trace_goes_on_in_the_run_of_a_repeated_message(made: Shop, kept: Kept) -> None:
    add = bodies(made)["add"]
    with sentry_sdk.start_transaction(name="web") as web:
        result = add.delay(1, 2)
    send_again(made, lost=True)
    send_again(made, lost=False)
    with made.worker():
        made.ended(result.id)
        until(lambda: len(kept.transactions()) >= 2, 15, kept.transactions)
    assert sorted(kept.transactions()) == [("shop.add", web.trace_id), ("web", web.trace_id)]


def test_sentry_hears_nothing_of_a_run_that_waits(made: Shop, kept: Kept) -> None:
    @durable
    @made.app.task(shared=False, name="shop.waiting")
    def waiting() -> int:
        current.sleep(1)
        return 1

    result = waiting.delay()
    with made.worker():
        assert result.get(timeout=20) == 1
    assert kept.errors() == []
