"""A rescue is told in one line: how many tasks were put back, and whose they were."""

from __future__ import annotations

import logging
from collections import Counter

from argus_celery.flow import restore
from argus_celery.flow.runtime import Runtime
from argus_celery.records import DispatchReport

logger = logging.getLogger(__name__)


def say(rt: Runtime, report: DispatchReport) -> None:
    """At WARNING, if the sweep or boot of this report met tasks of a worker that is gone."""
    if not report.lapsed or not logger.isEnabledFor(logging.WARNING):
        return
    lost = Counter(report.lost_by)
    nodes = restore.nodes(rt, list(lost))
    whose = ", ".join(f"{count} of {nodes.get(holder, 'unknown')} ({holder})" for holder, count in sorted(lost.items()))
    dead = f"; {len(report.dead)} lost their worker too often and are dead letters" if report.dead else ""
    logger.warning("argus: workers are gone, and their tasks run again: %s%s", whose, dead)
