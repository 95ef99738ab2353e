"""The hosts' clocks beside the database's. Leases follow the database's alone; what a host says of times does not."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

from argus_celery.doctor.findings import Check, Finding, Level
from argus_celery.store import holders

TOLERATED_MS = 2000


def skew(argus: Any) -> Iterator[Finding]:
    store = argus.runtime.store
    began = time.time_ns()
    now = store.statement(store.read_now)
    ended = time.time_ns()
    here = (began + ended) // 2_000_000 - now
    doubt = (ended - began) // 2_000_000
    clocks = store.statement(lambda connection: holders.clocks(store, connection))
    clocks.pop(socket.gethostname(), None)  # what a worker saw here is older
    clocks["this host"] = here if abs(here) > doubt else 0
    wrong = {host: ms for host, ms in clocks.items() if abs(ms) > TOLERATED_MS}
    for host, ms in wrong.items():
        yield Finding(
            Level.WARNING,
            SKEW.name,
            f"the clock of {host} is {abs(ms) / 1000:.1f} s {'ahead of' if ms > 0 else 'behind'} the database's:"
            " an eta, an expires= given as an instant and a beat entry follow it; leases and countdowns do not",
            f"keep {host} and the database's host in time (chrony, systemd-timesyncd)",
        )
    if not wrong:
        hosts = "the clock of 1 host is" if len(clocks) == 1 else f"the clocks of {len(clocks)} hosts are"
        yield SKEW.ok(f"{hosts} within {TOLERATED_MS / 1000:g} s of the database's")


SKEW = Check("clocks", skew)
CHECKS = (SKEW,)
