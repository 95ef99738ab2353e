"""A TCP proxy on loopback between one process and one server: it cuts, stalls and refuses connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")

AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets the connection and drops what is on its way."""
CHUNK = 65536


class Proxies:
    """Runs all proxies of a world in one thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._opened: list[Proxy] = []
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="proxies")
        self._thread.start()

    def to(self, url: str) -> Proxy:
        """A new one, whose ``url`` leads to that of a server."""
        proxy = self.call(Proxy(self, url).open())
        self._opened.append(proxy)
        return proxy

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run in the proxies' thread; what it returns."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def close(self) -> None:
        """All connections are reset: a server may hold locks for one whose client is gone."""
        self.call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for proxy in self._opened:
            proxy.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class Proxy:
    def __init__(self, home: Proxies, url: str) -> None:
        self._home, self._target = home, urlsplit(url)
        self._connections: set[asyncio.StreamWriter] = set()
        self._refusing = False
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def open(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    @property
    def url(self) -> str:
        """That of the server, through this proxy."""
        port = self._server.sockets[0].getsockname()[1]
        account, at, _ = self._target.netloc.rpartition("@")
        return self._target._replace(netloc=f"{account}{at}127.0.0.1:{port}").geturl()

    def cut(self, *, refuse: bool = False) -> None:
        """Reset all connections; new ones too until ``mend``, if ``refuse``."""
        self._do(lambda: self._cut(refuse))

    def stall(self) -> None:
        """Connections stay and carry nothing until ``mend``."""
        self._do(self._flowing.clear)

    def mend(self) -> None:
        self._do(self._mend)

    def close(self) -> None:
        self._server.close()
        self._cut(refuse=True)

    def _do(self, change: Callable[[], None]) -> None:
        async def run() -> None:
            change()

        self._home.call(run())

    def _cut(self, refuse: bool) -> None:
        self._refusing = refuse
        for writer in list(self._connections):
            _reset(writer)

    def _mend(self) -> None:
        self._refusing = False
        self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            return _reset(writer)
        self._connections.add(writer)
        try:
            there = await asyncio.open_connection(self._target.hostname, self._target.port)
        except OSError:
            self._connections.discard(writer)
            return _reset(writer)
        self._connections.add(there[1])
        await asyncio.gather(self._pump(reader, there[1]), self._pump(there[0], writer))
        self._connections -= {writer, there[1]}

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Until either side ends; then the other one ends too."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while data := await source.read(CHUNK):
                await self._flowing.wait()
                target.write(data)
                await target.drain()
        with contextlib.suppress(OSError, RuntimeError):
            target.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, RuntimeError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
    writer.transport.abort()
