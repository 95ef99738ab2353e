"""What one run of a case is made of; the worker processes read it from one environment variable."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.services import faketime

VARIABLE = "ARGUS_FAULTS_SETUP"
TIMINGS = {"lease_ttl": 6, "sweep_interval": 3, "dispatch_ttl": 3, "dispatch_ttl_max": 30}
LEASE_TTL = 6
T = 13.0
"""Seconds after a fault within which what was lost runs again, unless a case says otherwise."""


@dataclass(frozen=True)
class Setup:
    broker: str
    """URL of the broker."""
    store: str
    """SQLAlchemy URL of the store, which is the business database too."""
    ack: str
    pool: str
    ledger: str
    stock: bool = False
    """Celery as it comes: no Argus, results in the folder ``results``."""
    results: str = ""
    broker_options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    conf: Mapping[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    """Tasks this process does not know."""
    clock: str = ""
    """How far the wall clock of this process is off: ``+1h``."""
    dies_recording: str = ""
    """This process dies once, when it has recorded a task of this name and has not published it."""
    touch_store: bool = False
    """The main process uses the store before its pool forks."""

    def environment(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self)), **(faketime.environment(self.clock) if self.clock else {})}

    @classmethod
    def from_environment(cls) -> Setup:
        return cls(**json.loads(os.environ[VARIABLE]))
