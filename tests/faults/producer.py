"""``python -m tests.faults.producer TASK TAG``: commits a row and a task at once, and is killed behind that."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import sqlalchemy as sa

from tests.faults.app import make_app
from tests.faults.business import insert
from tests.faults.setup import Setup


def main(task_id: str, tag: str) -> None:
    setup = Setup.from_environment()
    app = make_app(setup, producer=True)
    engine = sa.create_engine(setup.store)
    with engine.begin() as connection:
        insert(connection, tag)
        if not setup.stock:
            from argus_celery import signals

            # What is told first behind the commit; the message would be sent next.
            signals.task_enqueued.connect(die, weak=False)
            app.tasks["readrow"].apply_async((tag,), task_id=task_id, argus_session=connection)
    die()


def die(**_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
