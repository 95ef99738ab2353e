"""The work as ordinary Celery tasks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from celery import Celery

import argus_celery  # noqa: F401 - the broker argus://, and nothing else of it
from examples.stdlib import journal, modules, place, results

app = Celery("plain", broker=place.broker("plain"), backend=f"db+{place.database('plain-backend')}")
app.conf.broker_connection_retry_on_startup = True
database = results.open_database(place.database("plain-results"))


@app.task(ignore_result=True)
def parse(path: str) -> None:
    journal.note(place.starts("plain"), path)
    facts = modules.facts_of(path)
    with database.begin() as connection:
        results.record(connection, facts)


@app.task
def sum_up() -> dict[str, Any]:
    with database.begin() as connection:
        return asdict(results.sum_up(connection))
