"""The same work made durable. What is recorded is fenced: the row and the check of the lease are one commit."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from celery import Celery

from argus_celery import Argus, current
from examples.stdlib import journal, modules, place, results

app = Celery("argus", broker=place.broker("argus"), backend="argus://")
app.conf.broker_connection_retry_on_startup = True
# Short times, so that nobody has to wait; a real app keeps the defaults.
argus = Argus(
    app,
    store=place.database("argus"),
    lease_ttl=6,
    sweep_interval=3,
    dispatch_ttl=3,
    dispatch_ttl_max=30,
    dispatch_window=100,
)
database = results.open_database(place.database("argus"))


@argus.durable
@app.task(ignore_result=True)
def parse(path: str) -> None:
    journal.note(place.starts("argus"), path)
    facts = modules.facts_of(path)
    with current.transaction() as connection:
        # A run that was killed between its commit and its end is repeated: it finds its own row.
        if not results.is_recorded(connection, path):
            results.record(connection, facts)


@argus.durable
@app.task
def sum_up() -> dict[str, Any]:
    with current.transaction() as connection:
        return asdict(results.sum_up(connection))
