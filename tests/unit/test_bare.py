"""An app that has durable tasks and no Argus is told so when its worker starts."""

from __future__ import annotations

import pytest
from celery import Celery
from celery.result import allow_join_result
from celery.signals import celeryd_after_setup

from argus_celery import Argus, durable


@pytest.fixture
def app() -> Celery:
    app = Celery("shop", broker="memory://", set_as_current=False)
    app.conf.update(worker_hijack_root_logger=False, worker_redirect_stdouts=False)

    @durable
    @app.task(name="charge", shared=False)
    def charge(order: int) -> int:
        return order

    return app


def set_up(app: Celery) -> None:
    """As a worker does when its logging stands."""
    with allow_join_result():  # a worker forbids it to its whole process, in which other tests ask for results
        celeryd_after_setup.send(sender="w1@test", instance=app.Worker(pool="solo"), conf=app.conf)


def test_a_worker_without_argus_names_its_durable_tasks(app: Celery, caplog: pytest.LogCaptureFixture) -> None:
    set_up(app)
    assert "argus: charge: decorated as durable, but nothing keeps them: call Argus(app)" in caplog.messages


def test_a_worker_with_argus_says_nothing(app: Celery, caplog: pytest.LogCaptureFixture) -> None:
    Argus(app, store="sqlite://")
    set_up(app)
    assert not [message for message in caplog.messages if "decorated as durable" in message]
