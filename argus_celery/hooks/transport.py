"""``broker="argus://"``: a kombu transport over the store's database, for no server at all or for PostgreSQL alone.

Like any transport it may lose messages: what a worker has taken and not acked goes back when it closes its connection,
and is lost if it is killed. The leases are the truth.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from typing import Any

import kombu.transport
from kombu.transport import virtual
from kombu.utils.url import maybe_sanitize_url

from argus_celery.errors import StoreError, StoreUnavailable
from argus_celery.hooks.bell import Bell
from argus_celery.hooks.channel import Channel
from argus_celery.store import mailboxes, messages
from argus_celery.store.broker import broker
from argus_celery.store.messages import CHANNEL, Taken
from argus_celery.store.urls import SCHEME, store_url_of
from argus_celery.store.waking import Waking, waking

logger = logging.getLogger(__name__)

BATCH = 50
"""Messages taken at once at most; a prefetch limit makes it fewer."""
KEEP_EVERY = 10.0
"""Seconds between signs of life for the queues that end with their reader."""
ACK_WAIT = 0.02
"""Seconds between looks of a blocking reader that has no room: acks come from other threads."""
LOOK_AROUND = 0.05
"""Seconds for which a queue that had more than was taken is read without a look at the others."""
REST, LONGEST_REST = 2.0, 0.1
"""How long a take rests while there is little room: so many times what the last one took, at most so many seconds."""
TICK = 0.05
"""Seconds of handing out after which the event loop gets its turn."""


class Transport(virtual.Transport):
    """One connection to the broker. It opens nothing but what it uses: a publisher never listens."""

    Channel = Channel
    can_parse_url = True
    driver_type = "argus"
    driver_name = "sqlalchemy"
    connection_errors = (StoreUnavailable, StoreError, OSError)
    channel_errors = virtual.Transport.channel_errors
    implements = virtual.Transport.implements.extend(
        asynchronous=True, batch_publish=True, exchange_type=frozenset(["direct", "topic", "fanout"])
    )

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.url = _url_of(client)
        self.store = broker(self.url)
        self.mailboxes: set[str] = set()
        self._pid = os.getpid()
        self._waking: Waking | None = None
        self._bell: Bell | None = None
        self._loop: Any = None
        self._timers: list[Any] = []
        self._rest: Any = None
        self._buffer: deque[tuple[Any, Taken]] = deque()
        self._awake, self._starved = True, False
        self._hot: list[str] = []
        self._looked_at = self._kept_at = time.monotonic()
        self._rests_until = float("-inf")

    def driver_version(self) -> str:
        return self.store.dialect_name

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        url = f"{SCHEME}+{self.url}"
        return url if include_password else str(maybe_sanitize_url(url, mask))

    def establish_connection(self) -> Any:
        """Reach the database once, so that an outage is told here and not at the first message."""
        messages.waiting(self.store, [""])
        _tell(self.as_uri(self.url))
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        if not self.is_own:
            return
        self._leave_loop()
        self._hand_back(self._buffer)
        super().close_connection(connection)
        if self._waking is not None:
            self._waking.close()
            self._waking = None

    @property
    def is_own(self) -> bool:
        """Not a fork's copy: there the parent goes on using what it holds."""
        return os.getpid() == self._pid

    def verify_connection(self, connection: Any) -> bool:
        return True

    # Blocking readers: inspect, events, and pools without an event loop

    def drain_events(self, connection: Any, timeout: float | None = None, **_: Any) -> None:
        """Hand out one message; raises ``TimeoutError`` if none comes in time."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._buffer:
            self._look_about()
            if self._awake and self._fetch():
                break
            left = self.waking.look_at_least or 1.0 if until is None else until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            rest = max(0.001, self._rests_until - time.monotonic()) if self._awake else 1.0
            self.waking.wait(min(left, rest, ACK_WAIT if self._starved else 1.0))
        self._hand_out_one()

    # The event loop of a worker. Messages are handed out from timers and readers, never from on_tick: the pool has its
    # own callback there, and what it is given after that one has run waits until something else wakes the loop.

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        self._leave_loop()
        self._loop, self._bell = loop, Bell()
        loop.add_reader(self._bell.fileno(), self._on_bell)
        descriptor = self.waking.fileno()
        if descriptor is not None:
            loop.add_reader(descriptor, self._look_and_pump)
        self._timers = [loop.call_repeatedly(1.0, self._look_and_pump)]
        if descriptor is None:
            self._look_again()

    def _on_bell(self) -> None:
        if self._bell is not None:
            self._bell.quiet()
            self._pump()

    def _look_again(self) -> None:
        """Where nobody tells us, ask in the rhythm that the way of waking has."""
        if self._loop is not None:
            self._look_and_pump()
            self._timers[1:] = [self._loop.call_later(self.waking.pause(), self._look_again)]

    def _look_and_pump(self) -> None:
        self._look_about()
        self._pump()

    def _pump(self) -> None:
        """Hand out for a moment. A solo pool runs its tasks in here, and the loop must see a shutdown between two."""
        until = time.monotonic() + TICK
        while time.monotonic() < until:
            if not self._buffer and not (self._awake and self._fetch()):
                return
            self._hand_out_one()
        if self._bell is not None:
            self._bell.ring()

    def _leave_loop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is None:
            return
        for timer in (*self._timers, self._rest):
            if timer is not None:
                timer.cancel()
        self._rest = None
        for readable in (self._bell, self._waking):
            descriptor = readable.fileno() if readable is not None else None
            if descriptor is not None and descriptor in loop.readers:
                loop.remove_reader(descriptor)
        if self._bell is not None:
            self._bell.close()
            self._bell = None

    # Both

    @property
    def waking(self) -> Waking:
        if self._waking is None:
            self._waking = waking(self.store, CHANNEL)
        return self._waking

    def call_again(self) -> None:
        """There is a queue more, or room again in one that was full. From any thread."""
        self._awake = True
        if self._bell is not None:
            self._bell.ring()

    def has_room(self) -> None:
        if self._starved and not self._awake:
            self.call_again()

    def cancelled(self, queue: str) -> None:
        """What was taken from a queue that is read no more, and not handed out yet, goes back."""
        mine = deque(pair for pair in self._buffer if pair[1].queue == queue)
        self._buffer = deque(pair for pair in self._buffer if pair[1].queue != queue)
        self._hand_back(mine)

    def _look_about(self) -> None:
        now, waking = time.monotonic(), self.waking
        heard = waking.heard(self._rooms() if self._starved else self._callbacks)
        overdue = bool(waking.look_at_least) and now - self._looked_at >= waking.look_at_least
        self._awake = self._awake or bool(heard) or overdue
        if self.mailboxes and now - self._kept_at >= KEEP_EVERY:
            self._kept_at = now
            self._keep_mailboxes()

    def _keep_mailboxes(self) -> None:
        ended = mailboxes.keep(self.store, list(self.mailboxes))
        for channel in self.channels:
            channel.declare_again(ended)
        mailboxes.bury(self.store)

    def _fetch(self) -> bool:
        """Take what there is room for; False if that was nothing, and nothing is to be had before we are woken."""
        while self._awake:
            rooms = self._rooms()
            if self._rests(rooms):
                return False
            found, of_all = self._with_messages(rooms)
            for queue in found:
                self._take(queue, rooms[queue])
            if self._buffer:
                self.waking.active()
                return True
            if of_all:
                self._awake, self._starved = False, len(rooms) < len(self._callbacks)
        return False

    def _rests(self, rooms: dict[str, Any]) -> bool:
        """Acks of short tasks come one by one; a take for each would leave the event loop no time for anything else."""
        left = self._rests_until - time.monotonic()
        limited = [channel for channel in rooms.values() if channel.qos.prefetch_count]
        if left <= 0 or not limited or any(channel.is_half_empty() for channel in limited):
            return False
        if self._loop is not None and self._rest is None:
            self._rest = self._loop.call_later(left, self._end_rest)
        return True

    def _end_rest(self) -> None:
        self._rest = None
        self._pump()

    def _rooms(self) -> dict[str, Any]:
        return {queue: channel for channel in self.channels for queue in channel.open_queues()}

    def _with_messages(self, rooms: dict[str, Any]) -> tuple[list[str], bool]:
        """The queues to take from, and whether all were looked at for that."""
        now = time.monotonic()
        hot = [queue for queue in self._hot if queue in rooms]
        if hot and now - self._looked_at < LOOK_AROUND:
            return hot, False
        self._looked_at = now
        found = messages.waiting(self.store, sorted(rooms)) if rooms else []
        return (found[1:] + found[:1] if self._hot[:1] == found[:1] else found), True

    def _take(self, queue: str, channel: Any) -> None:
        room = channel.room(self._buffered_for(channel))
        if room <= 0:
            return
        limit = min(room, BATCH)
        began = time.monotonic()
        taken = messages.take(self.store, queue, limit)
        ended = time.monotonic()
        self._rests_until = ended + min(REST * (ended - began), LONGEST_REST)
        self._buffer.extend((channel, one) for one in taken)
        if queue in self._hot:
            self._hot.remove(queue)
        if len(taken) == limit:
            self._hot.append(queue)

    def _buffered_for(self, channel: Any) -> int:
        return sum(1 for owner, _ in self._buffer if owner is channel)

    def _hand_out_one(self) -> None:
        channel, taken = self._buffer.popleft()
        self._deliver(channel.opened(taken), taken.queue)

    def _hand_back(self, buffered: deque[tuple[Any, Taken]]) -> None:
        parcels = [Channel.returned(taken) for _, taken in buffered if taken.queue not in self.mailboxes]
        buffered.clear()
        try:
            messages.put(self.store, parcels)
        except StoreUnavailable:
            logger.warning("argus: %d message(s) could not go back to the broker", len(parcels))


def _url_of(client: Any) -> str:
    prefix = f"{client.uri_prefix}+" if client.uri_prefix else ""
    url = store_url_of(f"{prefix}{client.hostname or SCHEME + '://'}")
    if url is None:
        raise StoreError(f"{client.hostname!r} is no argus:// broker URL")
    return url


_told: set[str] = set()


def _tell(uri: str) -> None:
    if uri not in _told:
        _told.add(uri)
        logger.info("argus: the broker is %s", uri)


def register() -> None:
    """kombu has no entry point for transports. ``argus+anything://`` is split at the plus sign by kombu itself."""
    kombu.transport.TRANSPORT_ALIASES[SCHEME] = f"{__name__}:Transport"
