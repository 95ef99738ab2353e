"""Messages, bindings and mailboxes of the embedded broker, on every database."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from argus_celery.store import mailboxes, messages
from argus_celery.store.broker import bindings, make
from argus_celery.store.broker import mailboxes as mailbox_rows
from argus_celery.store.broker import messages as message_rows
from argus_celery.store.engine import Store
from argus_celery.store.messages import Parcel
from argus_celery.store.waking import waking


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    store = Store(store_url, on_connect=make)
    yield store
    store.dispose()


def put(store: Store, *texts: str, queue: str = "q", rank: int = 9) -> None:
    messages.put(store, [Parcel(queue, rank, text) for text in texts])


def taken(store: Store, limit: int = 100, queue: str = "q") -> list[str]:
    return [one.message for one in messages.take(store, queue, limit)]


def rows(store: Store, table: sa.Table) -> int:
    query = sa.select(sa.func.count()).select_from(table)
    return store.statement(lambda connection: connection.execute(query).scalar_one())


def test_messages_come_in_the_order_they_were_put_and_leave_no_row(store: Store) -> None:
    put(store, "a", "b")
    put(store, "c")
    assert taken(store, 2) == ["a", "b"]
    assert taken(store) == ["c"]
    assert rows(store, message_rows) == 0


def test_a_more_urgent_message_overtakes(store: Store) -> None:
    put(store, "low")
    put(store, "high", rank=0)
    assert taken(store) == ["high", "low"]


def test_a_message_that_is_handed_back_returns_to_its_place(store: Store) -> None:
    put(store, "first")
    [first] = messages.take(store, "q", 1)
    time.sleep(0.01)
    put(store, "second")
    messages.put(store, [Parcel("q", first.rank, first.message, None, first.sent_at)])
    assert taken(store) == ["first", "second"]


def test_a_message_past_its_time_is_dropped(store: Store) -> None:
    messages.put(store, [Parcel("q", 9, "stale", ttl=0), Parcel("q", 9, "fresh", ttl=60_000)])
    time.sleep(0.005)
    assert taken(store) == ["fresh"]
    assert rows(store, message_rows) == 0


def test_only_queues_with_messages_are_told_as_waiting(store: Store) -> None:
    put(store, "x", queue="b")
    assert messages.waiting(store, ["a", "b", "c"]) == ["b"]


def test_takers_at_once_never_take_the_same_message(store: Store) -> None:
    put(store, *map(str, range(200)))
    got: list[str] = []

    def drain() -> None:
        while messages.waiting(store, ["q"]):
            got.extend(taken(store, 7))

    threads = [threading.Thread(target=drain) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got, key=int) == [str(number) for number in range(200)]


def test_binding_twice_changes_nothing(store: Store) -> None:
    for _ in range(2):
        mailboxes.bind(store, "events", "#", "q")
    assert mailboxes.bound(store, "events") == [("#", "q")]


def test_a_mailbox_whose_reader_died_ends_with_its_bindings_and_messages(store: Store) -> None:
    mailboxes.open_mailbox(store, "box", 1000)
    mailboxes.bind(store, "events", "#", "box")
    put(store, "unread", queue="box")
    assert mailboxes.bury(store) == 0
    store.clock_shift = 1500
    assert mailboxes.bury(store) == 1
    assert rows(store, bindings) == rows(store, message_rows) == 0
    put(store, "sent by one who had read the binding before", queue="box")
    store.clock_shift += mailboxes.GRACE
    mailboxes.bury(store)
    assert rows(store, mailbox_rows) == rows(store, message_rows) == 0


def test_what_is_sent_to_a_mailbox_while_it_closes_is_removed_too(store: Store) -> None:
    mailboxes.open_mailbox(store, "box", 1000)
    mailboxes.drop(store, "box")
    put(store, "sent by one who had read the binding before", queue="box")
    store.clock_shift = mailboxes.GRACE + 1
    mailboxes.bury(store)
    assert rows(store, mailbox_rows) == rows(store, message_rows) == 0


def test_a_reader_that_lives_keeps_its_mailbox_and_is_told_if_it_ended(store: Store) -> None:
    mailboxes.open_mailbox(store, "box", 1000)
    store.clock_shift = 900
    assert mailboxes.keep(store, ["box", "gone"]) == {"gone"}
    store.clock_shift = 1800
    assert mailboxes.bury(store) == 0


def test_a_reader_hears_of_a_message_within_a_second_and_of_nothing_else(store: Store) -> None:
    mine = waking(store, messages.CHANNEL)
    try:
        put(store, "x")
        until = time.monotonic() + 1
        while not mine.heard(["q"]) and time.monotonic() < until:
            mine.wait(0.05)
        assert time.monotonic() < until
    finally:
        mine.close()
