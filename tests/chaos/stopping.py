"""Processes that are stopped for a while and go on, believing that no time has passed."""

from __future__ import annotations

import os
import signal

from tests.chaos.fault import Hit, OnWorker
from tests.chaos.world import World
from tests.faults.setup import LEASE_TTL


class StopWorker(OnWorker):
    """Beyond its leases, so that others take over what it runs, or for a moment."""

    name, weight, stops = "stop worker", 3, True
    lasts = (1, 2.2 * LEASE_TTL)

    def begin(self, world: World) -> Hit:
        slot = self.worker(world)
        assert slot.node is not None
        pids = frozenset(slot.pids)
        slot.node.freeze()
        return Hit(pids)

    def heal(self, world: World) -> None:
        slot = self.worker(world)
        assert slot.node is not None
        slot.node.thaw()


class StopMain(OnWorker):
    """Only the process that renews: its children work on."""

    name, stops = "stop main process", True
    lasts = (1, 2 * LEASE_TTL)

    def begin(self, world: World) -> Hit:
        slot = self.worker(world)
        os.kill(slot.pid, signal.SIGSTOP)
        return Hit(frozenset({slot.pid}))

    def heal(self, world: World) -> None:
        os.kill(self.worker(world).pid, signal.SIGCONT)
