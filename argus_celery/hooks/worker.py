"""What a worker's main process does for its durable tasks, from boot to exit.

Before the pool starts it takes an identity. Then it restores, and starts two threads that live as long as the process:
one renews what the pool has in hand, one dispatches. They go on while the pool drains. At the exit, when no body can
run any more, it hands back what was cut off.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from functools import partial
from typing import Any

from celery import bootsteps
from celery.signals import worker_shutdown
from celery.worker import state

from argus_celery.errors import ArgusError
from argus_celery.flow import restore
from argus_celery.flow.release import release
from argus_celery.hooks import control, expired, holder, signalling, stamps, told
from argus_celery.hooks.attached import attached
from argus_celery.hooks.blocking import ShortWaits
from argus_celery.hooks.drivers import check_driver
from argus_celery.hooks.errands import errands
from argus_celery.hooks.idle import room_of
from argus_celery.hooks.invalid import InvalidTasks
from argus_celery.hooks.loop import Loop
from argus_celery.hooks.rates import RateLimits
from argus_celery.hooks.reconnect import Reconnect
from argus_celery.hooks.renewing import Renewing, active_requests
from argus_celery.hooks.request import cut_off
from argus_celery.hooks.unknown import UnknownTasks

logger = logging.getLogger(__name__)

BOOT_PATIENCE = 2.0
"""Seconds that the boot waits for the first restore; a store or broker that is away must not keep it longer."""
EXIT_PATIENCE = 3.0
LEAVE_PAUSE = 0.1
CHILD_CHECK_INTERVAL = 0.5
"""Seconds between looks for dead children: Celery itself may overlook one for five."""


def install(argus: Any) -> None:
    """Add the steps to the app's blueprints."""
    argus.app.steps["worker"].add(Station)
    argus.app.steps["consumer"].update((InvalidTasks, Reconnect, RateLimits, ShortWaits, UnknownTasks))


class Station(bootsteps.StartStopStep):
    """Worker step: starts after the pool and before anything is consumed."""

    name = "argus.station"
    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        argus = attached(worker.app)
        argus.check()
        check_driver(worker.pool_cls, argus.runtime)
        holder.take()
        told.prepare()
        control.listen()
        self.unstarted: list[Any] = []

    def create(self, worker: Any) -> None:
        """Nothing to make before the pool has forked."""

    def start(self, worker: Any) -> None:
        argus = attached(worker.app)
        rt, me = argus.runtime, holder.facts(worker.hostname)
        stop = partial(control.stop_stamped, worker.app, worker.pool)
        learn, say_expired = partial(stamps.refresh, rt, stop), partial(expired.say, worker)
        room = partial(room_of, worker)
        self.loop = Loop(rt, me, errands, argus.pay_debts, learn, say_expired, argus.pruning().in_turn, room)
        self.loop.start()
        self.renewing = Renewing(worker.app, rt, me.id, worker.pool)
        self.renewing.start()
        signalling.defer(worker.pool)
        self.pid = os.getpid()
        self.left = False
        atexit.register(self.leave)
        worker_shutdown.connect(self.leave_drained, weak=False)
        self.worker = worker
        self.loop.booted.wait(BOOT_PATIENCE)

    def register_with_event_loop(self, worker: Any, hub: Any) -> None:
        if hasattr(worker.pool, "maintain_pool"):
            hub.call_repeatedly(CHILD_CHECK_INTERVAL, worker.pool.maintain_pool)

    def close(self, worker: Any) -> None:
        """A shutdown begins: remember what was taken from the broker and not begun, before the consumer forgets it."""
        self.unstarted = [one for one in tuple(state.reserved_requests) if one not in state.active_requests]

    def stop(self, worker: Any) -> None:
        """Nothing is consumed any more: what was not begun goes back to the broker, and the pool may drain for long."""
        for request in self.unstarted:
            if getattr(request, "claimed", None) is not None and request not in state.active_requests:
                request.reject(requeue=True)

    def terminate(self, worker: Any) -> None:
        self.stop(worker)
        if threading.current_thread() is threading.main_thread():
            return
        if not any(request.app is worker.app for request in tuple(state.reserved_requests)):
            self.leave()  # nothing runs, and nothing will
        else:
            threading.Thread(target=self._leave_embedded, name="argus-leave", daemon=True).start()

    def _leave_embedded(self) -> None:
        """A cold stop inside a process that goes on: Celery sends no signal of it, and bodies may run on in threads."""
        self.worker.blueprint.shutdown_complete.wait()
        while self._in_hand():
            time.sleep(LEAVE_PAUSE)
        self.leave()

    def leave_drained(self, sender: Any = None, **_: Any) -> None:
        """A worker that stops in a process that goes on (an embedded one) leaves when its pool has drained."""
        if sender is self.worker and not self._in_hand():
            self.leave()

    def leave(self) -> None:
        """At the exit of the process no body runs any more: what was in hand is handed back."""
        if os.getpid() != self.pid or self.left:
            return
        self.left = True
        atexit.unregister(self.leave)
        worker_shutdown.disconnect(self.leave_drained)
        self.loop.stop(EXIT_PATIENCE)
        self.renewing.stop()
        try:
            release(self.loop.rt, self.loop.me.id, sorted(cut_off | self._in_hand()), "the worker was stopped")
            restore.sign_off(self.loop.rt, self.loop.me.id)
        except ArgusError as error:
            logger.error("argus: %s; what was in hand here will lapse by itself", error)

    def _in_hand(self) -> set[told.Held]:
        mine = [request for request in active_requests() if request.app is self.worker.app]
        return {request.claimed for request in mine if request.claimed is not None}
