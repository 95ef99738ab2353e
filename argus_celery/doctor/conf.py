"""What the app is configured to do, and what of it is unsafe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from argus_celery.config import NEVER_DURABLE
from argus_celery.doctor.findings import Check, Finding, Level
from argus_celery.hooks.backend import is_foreign
from argus_celery.hooks.durable import is_durable, options_of
from argus_celery.store import inspection

VISIBILITY = {"redis": 3600, "rediss": 3600, "sentinel": 3600, "valkey": 3600, "sqs": 1800}
"""The default visibility timeout of the transports that have one."""


def renewal(argus: Any) -> Iterator[Finding]:
    """Leases that were recorded under other settings keep their TTL, and are renewed in the period of today's."""
    settings, store = argus.settings, argus.runtime.store
    own = [ttl for task in argus.app.tasks.values() if is_durable(task) and (ttl := options_of(task).lease_ttl)]
    period = min([settings.lease_ttl, *own]) / 3
    shortest = store.statement(inspection.shortest_ttl)
    if shortest is not None and shortest.ttl_ms <= period * 1000:
        yield Finding(
            Level.ERROR,
            RENEWAL.name,
            f"{shortest.name}[{shortest.task_id}] was recorded with a lease of {shortest.ttl_ms / 1000:g} s, and"
            f" workers renew every {period:g} s: its runs are taken from workers that live",
            f"keep argus_lease_ttl (or the task's lease_ttl) below {3 * shortest.ttl_ms / 1000:g} until such tasks have"
            " ended",
        )
    else:
        yield RENEWAL.ok(f"leases are renewed every {period:g} s, well within the shortest of them")


def visibility(argus: Any) -> Iterator[Finding]:
    """A broker that delivers again what is not acked in time, under tasks that ack when they end."""
    conf = argus.app.conf
    scheme = _scheme(argus.app)
    if scheme not in VISIBILITY:
        return
    timeout = float((conf.broker_transport_options or {}).get("visibility_timeout") or VISIBILITY[scheme])
    late = [task for task in argus.app.tasks.values() if task.acks_late and not task.name.startswith(NEVER_DURABLE)]
    longer = [task for task in late if _outlasts(task, conf, timeout, VISIBILITY[scheme])]
    for kind, what in ((True, "each copy is refused, and costs a delivery"), (False, "it runs twice at once")):
        names = sorted(task.name for task in longer if is_durable(task) is kind)
        if names:
            yield Finding(
                Level.WARNING,
                VISIBILITY_TIMEOUT.name,
                f"{_few(names)} acks late and may run for longer than visibility_timeout ({timeout:g} s): then the"
                f" broker delivers it again while it runs, and {what}",
                "raise broker_transport_options['visibility_timeout'] above the longest run, give the task a time_limit"
                + (", or leave acks_late off: a durable task needs it for nothing" if kind else ", or make it durable"),
            )
    if not longer:
        yield VISIBILITY_TIMEOUT.ok(f"no task that acks late outlasts visibility_timeout ({timeout:g} s)")


def _outlasts(task: Any, conf: Any, timeout: float, default: float) -> bool:
    """Without a limit nobody knows; below Celery's own default somebody has chosen to be in a hurry."""
    limit = task.time_limit or conf.task_time_limit
    return bool(limit > timeout) if limit else timeout < default


def expiry(argus: Any) -> Iterator[Finding]:
    """Results that are gone before somebody reads them."""
    store, retention = argus.runtime.store, argus.settings.retention
    expires = argus.results.expires
    oldest = store.statement(lambda connection: inspection.oldest_chord_ms(store, connection))
    fine = True
    if expires and oldest is not None and oldest / 1000 > expires:
        fine = False
        yield Finding(
            Level.WARNING,
            EXPIRY.name,
            f"a chord has waited for its header for {oldest / 1000:.0f} s, longer than result_expires ({expires} s):"
            " its body gets all results, which the store keeps; who reads those of the header finds some expired",
            "raise result_expires above the longest chord",
        )
    if is_foreign(argus.app.backend):
        pass  # that backend keeps results by itself
    elif not expires or expires > retention:
        fine = False
        kept = f"{expires} s" if expires else "for ever"
        yield Finding(
            Level.WARNING,
            EXPIRY.name,
            f"result_expires is {kept}, and a durable task's result goes with its row after argus_retention"
            f" ({retention:g} s)",
            "raise argus_retention, or lower result_expires to what holds",
        )
    if fine:
        yield EXPIRY.ok("no result goes before its time")


def _scheme(app: Any) -> str:
    return str(app.conf.broker_write_url or app.conf.broker_url or "").partition("://")[0].partition("+")[0]


def _few(names: list[str]) -> str:
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")


RENEWAL = Check("renewal", renewal)
VISIBILITY_TIMEOUT = Check("late acks", visibility, needs_store=False)
EXPIRY = Check("results", expiry)
CHECKS = (RENEWAL, VISIBILITY_TIMEOUT, EXPIRY)
