"""Doctor: is this app, with this broker and this store, safe, and how long does a recovery take at worst?

Nothing is changed. Each file holds one group of checks; ``examine`` runs them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from argus_celery.doctor import broker, clocks, conf, schema, storage, work
from argus_celery.doctor.findings import Check, Finding, Level
from argus_celery.doctor.recovery import Recovery, recoveries
from argus_celery.errors import ArgusError, SettingError, StoreUnavailable

CHECKS: tuple[Check, ...] = (
    *schema.CHECKS,
    *storage.CHECKS,
    *clocks.CHECKS,
    *conf.CHECKS,
    *broker.CHECKS,
    *work.CHECKS,
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    findings: tuple[Finding, ...]
    recoveries: tuple[Recovery, ...] = ()
    """By kind of fault; empty where the settings cannot be read."""

    @property
    def worst(self) -> Level:
        """What could not be checked is told, and is no fault."""
        found = {finding.level for finding in self.findings}
        return next((level for level in (Level.ERROR, Level.WARNING) if level in found), Level.OK)

    @property
    def worst_recovery(self) -> float | None:
        return max((one.seconds for one in self.recoveries), default=None)


def examine(argus: Any) -> Diagnosis:
    """Run all checks. Takes some seconds, for workers are asked and given time to answer."""
    try:
        argus.check()
    except ArgusError as error:
        return Diagnosis((Finding(Level.ERROR, "settings", str(error), "nothing else was checked"),))
    ready = schema.is_ready(argus)
    checks = [check for check in CHECKS if ready or not check.needs_store]
    findings = tuple(finding for check in checks for finding in _looked(check, argus))
    return Diagnosis(findings, tuple(recoveries(argus)))


def _looked(check: Check, argus: Any) -> Iterator[Finding]:
    try:
        yield from check.look(argus)
    except StoreUnavailable:
        yield Finding(Level.UNKNOWN, check.name, "not checked: the store cannot be reached")
    except SettingError:
        raise
    except Exception as error:
        yield Finding(Level.UNKNOWN, check.name, f"not checked: {type(error).__name__}: {error}")
