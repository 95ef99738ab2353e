"""A fork while another thread of the parent writes: the child must be able to write too (SQLite)."""

from __future__ import annotations

import os
import threading
import time

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from argus_celery.store.engine import Store


def test_a_child_forked_while_a_thread_of_its_parent_writes_can_write_too(sqlite_store_url: str) -> None:
    store = Store(sqlite_store_url)
    store.transaction(lambda c: c.execute(sa.text("CREATE TABLE t (n INTEGER)")))
    for _ in range(5):
        writing = threading.Event()

        def slow_write(connection: Connection, begun: threading.Event = writing) -> None:
            connection.execute(sa.text("INSERT INTO t VALUES (1)"))
            begun.set()
            time.sleep(0.05)

        thread = threading.Thread(target=store.transaction, args=(slow_write,))
        thread.start()
        writing.wait()
        child = os.fork()
        if child == 0:
            store.transaction(lambda c: c.execute(sa.text("INSERT INTO t VALUES (2)")))
            os._exit(0)
        assert _ends_well(child)
        thread.join()
    count = sa.text("SELECT count(*) FROM t")
    assert store.statement(lambda c: c.execute(count).scalar_one()) == 10


def _ends_well(child: int) -> bool:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False
