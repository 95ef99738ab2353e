"""Tasks whose base class runs them in an application context, the way Flask's manual does it."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Task, shared_task

from argus_celery import current, durable
from argus_celery.records import TaskState
from tests.integration.embedded import Shop

flask = pytest.importorskip("flask")


def test_a_durable_task_runs_in_the_context_of_its_base_class(made: Shop) -> None:
    web = flask.Flask("the-web")

    class ContextTask(Task):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            with web.app_context():
                return self.run(*args, **kwargs)

    made.app.task_cls = ContextTask

    @durable
    @shared_task(name="web.whose", shared=False)
    def whose() -> tuple[str, str]:
        return flask.current_app.name, current.task_id

    made.app.set_current()
    result = whose.delay()
    assert result.app is made.app
    with made.worker():
        assert made.ended(result.id).state is TaskState.SUCCEEDED
    assert list(result.get(timeout=5)) == ["the-web", result.id]
