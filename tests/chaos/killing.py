"""Processes that are killed, or asked to end, and started again."""

from __future__ import annotations

import contextlib
import os
import signal

from tests.chaos.fault import Fault, Hit, OnWorker
from tests.chaos.world import Slot, World
from tests.faults.matrix import SERVERS


class KillChild(OnWorker):
    """The OOM killer takes a process of a pool."""

    name, weight = "kill child", 6

    def worker(self, world: World) -> Slot:
        slots = [one for one in world.workers if one.pool == "prefork"]
        return slots[self.choice % len(slots)]

    def begin(self, world: World) -> Hit:
        slot = self.worker(world)
        children = sorted(slot.pids - {slot.pid})
        # Celery ends a worker that loses a child before its loop has begun.
        if not children or slot.pid not in world.progress.ready:
            return Hit()
        child = children[self.choice % len(children)]
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        return Hit(frozenset({child}))


class KillWorker(OnWorker):
    """A machine dies; another comes in its place."""

    name, weight, lasts = "kill worker", 5, (0, 5)

    def begin(self, world: World) -> Hit:
        return kill(self.worker(world))

    def heal(self, world: World) -> None:
        self.worker(world).start()


class SkewWorker(KillWorker):
    """The next one's clock is an hour off, until it is killed. On SQLite a worker's clock decides, so not there."""

    name, weight, stores, tool = "skew clock", 1, SERVERS, "faketime"

    def heal(self, world: World) -> None:
        self.worker(world).start(clock=("+1h", "-1h")[self.choice % 2])


class TermWorker(OnWorker):
    """SIGTERM as a supervisor sends it, SIGKILL to what has not ended then, and a new one."""

    name, weight, lasts = "term worker", 3, (2, 15)

    def begin(self, world: World) -> Hit:
        slot = self.worker(world)
        pids = frozenset(slot.pids)
        assert slot.node is not None
        slot.node.terminate()
        return Hit(pids)

    def heal(self, world: World) -> None:
        slot = self.worker(world)
        kill(slot)
        slot.start()


class KillAllWorkers(Fault):
    name, lasts = "kill all workers", (0, 5)

    def victims(self, world: World) -> set[str]:
        return {one.name for one in world.workers}

    def begin(self, world: World) -> Hit:
        return Hit(frozenset().union(*(kill(one).pids for one in world.workers)))

    def heal(self, world: World) -> None:
        for one in world.workers:
            one.start()


class KillBeat(Fault):
    name, weight, lasts = "kill beat", 1, (0, 4)

    def victims(self, world: World) -> set[str]:
        return {world.beat.name}

    def begin(self, world: World) -> Hit:
        return kill(world.beat)

    def heal(self, world: World) -> None:
        world.beat.start()


class KillProducer(Fault):
    name, weight = "kill producer", 2

    def victims(self, world: World) -> set[str]:
        return {world.producer.name}

    def begin(self, world: World) -> Hit:
        return kill(world.producer)

    def heal(self, world: World) -> None:
        world.producer.start()


def kill(slot: Slot) -> Hit:
    pids = frozenset(slot.pids)
    assert slot.node is not None
    slot.node.kill()
    return Hit(pids)
