"""OpenTelemetry's Celery instrumentation: the trace goes on over a restore, and every span that begins ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from argus_celery.records import TaskState
from tests.integration.embedded import Shop
from tests.neighbours.conftest import bodies, send_again

pytest.importorskip("opentelemetry.sdk")
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider


class Spans(SpanProcessor):
    """All that began, and all that ended."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.ended: list[Any] = []

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.begun.append(span)

    def on_end(self, span: Any) -> None:
        self.ended.append(span)

    def named(self, name: str) -> list[Any]:
        return [span for span in self.ended if span.name == name]


@pytest.fixture
def spans() -> Iterator[Spans]:
    spans, provider = Spans(), TracerProvider()
    provider.add_span_processor(spans)
    CeleryInstrumentor().instrument(tracer_provider=provider)
    yield spans
    CeleryInstrumentor().uninstrument()


def test_the_run_of_a_repeated_message_is_of_the_trace_of_its_call(made: Shop, spans: Spans) -> None:
    result = bodies(made)["add"].delay(1, 2)
    send_again(made, lost=True)
    with made.worker():
        assert made.ended(result.id).state is TaskState.SUCCEEDED
        made.drained()
    (sent,) = spans.named("apply_async/shop.add")
    (ran,) = spans.named("run/shop.add")
    assert ran.context.trace_id == sent.context.trace_id
    assert ran.parent.span_id == sent.context.span_id


def test_no_span_is_left_open_by_a_refused_delivery_a_retry_or_a_lost_lease(made: Shop, spans: Spans) -> None:
    tasks = bodies(made)
    results = [tasks["add"].delay(1, 2), tasks["again"].delay(), tasks["robbed"].delay("noticed")]
    failed = tasks["fail"].delay()
    send_again(made, lost=False)
    with made.worker():
        assert {made.ended(result.id).state for result in results} == {TaskState.SUCCEEDED}
        made.ended(failed.id)
        made.drained()
    assert len(spans.named("run/shop.add")) == 1
    assert len(spans.named("run/shop.again")) == len(spans.named("run/shop.robbed")) == 2
    assert {span.context.span_id for span in spans.begun} == {span.context.span_id for span in spans.ended}
    errors = {span.name for span in spans.ended if not span.status.is_ok and span.status.description}
    assert errors == {"run/shop.fail"}
