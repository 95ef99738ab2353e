"""The brokers of the matrix, each with what a case does to it: flush, copy messages, stop, look how many are left."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from itertools import islice
from queue import Empty
from typing import Any

import kombu
import redis
from amqp.exceptions import ChannelError

from tests.services import RabbitServer, RedisServer, Server
from tests.services.fresh import fresh_vhost

QUEUE = "celery"
ALL = 10**6


class Broker:
    def __init__(self, url: str, server: Server | None = None) -> None:
        self.url = url
        self._server = server

    @property
    def server(self) -> Any:
        """The server that is this run's own, to stop and to start."""
        assert self._server is not None, "this case needs own_broker=True"
        return self._server

    def flush(self) -> None:
        """Everything in it is gone: FLUSHALL, or what comes nearest."""
        raise NotImplementedError

    def depth(self) -> int:
        """Messages in the queue, delivered and not acked ones too."""
        raise NotImplementedError

    def ready(self) -> int:
        """Messages in the queue that no worker has been given."""
        raise NotImplementedError

    def take(self, most: int = ALL) -> list[Any]:
        """The raw messages that wait in the queue, which stay there."""
        raise NotImplementedError

    def put(self, messages: list[Any]) -> None:
        """Put raw messages into the queue, with the same body, id and headers."""
        raise NotImplementedError

    def _with_channel(self, work: Callable[[Any], Any]) -> Any:
        with kombu.Connection(self.url) as connection, connection.channel() as channel:
            return work(channel)


class Virtual(Broker):
    """Redis and argus://: kombu's virtual transports, whose raw message is one document."""

    def flush(self) -> None:
        self._with_channel(lambda channel: channel.queue_purge(QUEUE))

    def depth(self) -> int:
        return self.ready()

    def ready(self) -> int:
        return int(self._with_channel(lambda channel: channel._size(QUEUE)))

    def take(self, most: int = ALL) -> list[Any]:
        def read(channel: Any) -> list[Any]:
            found: list[Any] = []
            # Workers that run take of it too.
            with contextlib.suppress(Empty):
                for _ in range(min(most, channel._size(QUEUE))):
                    found.append(channel._get(QUEUE))
            for message in found:
                channel._put(QUEUE, message)
            return found

        return list(self._with_channel(read))

    def put(self, messages: list[Any]) -> None:
        self._with_channel(lambda channel: [channel._put(QUEUE, message) for message in messages])


class Redis(Virtual):
    def flush(self) -> None:
        with redis.Redis.from_url(self.url) as client:
            client.flushall()

    def depth(self) -> int:
        with redis.Redis.from_url(self.url) as client:
            return self.ready() + int(client.hlen("unacked"))


class Rabbit(Broker):
    def __init__(self, url: str, control: list[str], server: Server | None = None) -> None:
        super().__init__(url, server)
        self.control = control

    def flush(self) -> None:
        with contextlib.suppress(ChannelError):
            self._with_channel(lambda channel: channel.queue_purge(QUEUE))

    def depth(self) -> int:
        vhost = self.url.rpartition("/")[2] or "/"
        call = [*self.control, "-q", "list_queues", "-p", vhost, "name", "messages"]
        rows = subprocess.run(call, check=True, capture_output=True, text=True).stdout.split("\n")
        return sum(int(row.split()[1]) for row in rows if row.split()[:1] == [QUEUE])

    def ready(self) -> int:
        return int(self._with_channel(lambda channel: channel.queue_declare(QUEUE, passive=True).message_count))

    def take(self, most: int = ALL) -> list[Any]:
        """Got and not acked: they go back when the channel closes."""

        def read(channel: Any) -> list[Any]:
            return list(islice(iter(lambda: channel.basic_get(QUEUE), None), most))

        return list(self._with_channel(read))

    def put(self, messages: list[Any]) -> None:
        def publish(channel: Any) -> None:
            for message in messages:
                channel.basic_publish(message, exchange="", routing_key=QUEUE)

        self._with_channel(publish)


@contextlib.contextmanager
def open_broker(
    kind: str, store_url: str, *, own: bool, aof: bool, rabbit: tuple[str, list[str]] | None
) -> Iterator[Broker]:
    """A clean broker for one run; ``own`` is one that may be stopped."""
    if kind == "argus":
        yield Virtual(f"argus+{store_url}")
    elif kind == "redis":
        with RedisServer(aof=aof) as server:
            yield Redis(server.url, server)
    elif own:
        with RabbitServer() as server:
            yield Rabbit(server.url, server.control_command, server)
    else:
        assert rabbit is not None
        with fresh_vhost(*rabbit) as url:
            yield Rabbit(url, rabbit[1])
