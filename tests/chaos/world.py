"""The world of one run: broker, store, workers, beat and producer, and whatever keeps them apart."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from argus_celery.store import setup as store_setup
from argus_celery.store.engine import Store
from tests.chaos.options import Options
from tests.chaos.producer import STOP
from tests.chaos.progress import Progress
from tests.chaos.proxy import Proxies, Proxy
from tests.chaos.work import POISON
from tests.faults.brokers import Broker, open_broker
from tests.faults.ledger import Ledger
from tests.faults.nodes import Node
from tests.faults.setup import TIMINGS, Setup
from tests.faults.stores import StorePlace, open_store

SETTINGS = {**TIMINGS, "sweep_interval": 2, "dispatch_ttl": 5, "max_losses": 100}
TICK = {"beat_schedule": {"tick": {"task": "tick", "schedule": 3}}}
VISIBILITY = {"visibility_timeout": 10}
"""Seconds after which Redis gives out again what was not acked: shorter than the longest tasks."""


class Worker(Node):
    program = ("-m", "celery", "-A", "tests.chaos.worker")


class ProducerNode(Node):
    program = ("-m", "tests.chaos.producer")


@dataclass
class Slot:
    """A place for a process, which is started again when it was killed. Its ways to the servers are its own."""

    name: str
    setup: Setup
    folder: Path
    call: list[str]
    kind: type[Node] = Worker
    pool: str = ""
    ways: dict[str, Proxy] = field(default_factory=dict)
    """``broker`` and ``store``, where they are servers."""
    node: Node | None = None
    is_over: bool = False
    """It may end by itself now."""

    def start(self, clock: str = "") -> None:
        """With a wall clock that is off by ``clock``, if any."""
        if self.node is None or not self.node.running:
            self.node = self.kind(self.name, replace(self.setup, clock=clock), self.folder, self.call)

    @property
    def running(self) -> bool:
        return self.node is not None and self.node.running

    @property
    def pid(self) -> int:
        assert self.node is not None
        return self.node.pid

    @property
    def pids(self) -> set[int]:
        """Of its process and all below it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return {self.pid, *(child.pid for child in psutil.Process(self.pid).children(recursive=True))}
        return {self.pid}

    def end(self) -> None:
        if self.node is not None:
            self.node.clean_up()


@dataclass
class World:
    options: Options
    folder: Path
    place: StorePlace
    broker: Broker
    store: Store
    """Not by way of a proxy."""
    workers: list[Slot]
    beat: Slot
    producer: Slot
    progress: Progress
    setup: Setup
    kept: list[Any] = field(default_factory=list)
    """Raw messages from before, to be replayed."""

    @property
    def slots(self) -> list[Slot]:
        return [*self.workers, self.beat, self.producer]

    def stop_sending(self) -> None:
        (self.folder / STOP).touch()
        self.producer.is_over = self.beat.is_over = True
        self.beat.end()

    def note_fault(self, event: str, number: int, name: str, victims: set[str]) -> None:
        """For a person who looks into a run that failed."""
        Ledger(self.folder / "faults").note(event, name, str(number), detail=" ".join(sorted(victims)))


@contextlib.contextmanager
def open_world(options: Options, folder: Path) -> Iterator[World]:
    """All of it, started. Ends everything that it started."""
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(open_store(options.store, folder, own=options.store != "sqlite"))
        broker = stack.enter_context(open_broker(options.broker, place.url, own=True, aof=False, rabbit=None))
        store = Store(place.url, app_name="faults")
        stack.callback(store.dispose)
        store_setup.init(store)
        proxies = Proxies()
        stack.callback(proxies.close)
        made = _made(options, folder, place, broker, store, proxies)
        for slot in made.slots:
            stack.callback(slot.end)
            slot.start()
        yield made


def _made(options: Options, folder: Path, place: StorePlace, broker: Broker, store: Store, proxies: Proxies) -> World:
    setup = Setup(
        broker=broker.url,
        store=place.url,
        ack=options.ack,
        pool="",
        ledger=str(folder / "ledger"),
        broker_options=VISIBILITY if options.broker == "redis" else {},
        settings=SETTINGS,
        conf=TICK,
    )

    def slot(name: str, call: list[str], **more: Any) -> Slot:
        ways = _ways(options, broker, place, proxies)
        own = replace(setup, **_through(ways, options, setup))
        return Slot(name, own, folder, call, ways=ways, **more)

    workers = []
    for number in range(1, options.workers + 1):
        name, pool = f"w{number}", options.pool(number)
        queues = ["celery", own_queue(name), *([POISON] if pool == "prefork" else [])]
        call = ["worker", "-n", f"{name}@%h", "-P", pool, "-c", "2", "-l", "INFO", "-Q", ",".join(queues)]
        workers.append(slot(name, [*call, "--without-mingle"], pool=pool))
    beat = slot("beat", ["beat", "-s", str(folder / "schedule"), "-l", "INFO"])
    producer = slot("producer", [str(options.seed), str(options.backlog), str(folder)], kind=ProducerNode)
    return World(options, folder, place, broker, store, workers, beat, producer, Progress(setup.ledger), setup)


def own_queue(worker: str) -> str:
    """Of which only this worker takes."""
    return f"only-{worker}"


def _ways(options: Options, broker: Broker, place: StorePlace, proxies: Proxies) -> dict[str, Proxy]:
    store = {} if options.store == "sqlite" else {"store": proxies.to(place.url)}
    return store if options.broker == "argus" else {**store, "broker": proxies.to(broker.url)}


def _through(ways: dict[str, Proxy], options: Options, setup: Setup) -> dict[str, str]:
    store = ways["store"].url if "store" in ways else setup.store
    broker = ways["broker"].url if "broker" in ways else setup.broker
    return {"store": store, "broker": f"argus+{store}" if options.broker == "argus" else broker}
