"""The crawl: level by level from the first page, each page fetched and saved once.

A level is a step, so that a run that goes on for a dead one walks through the same pages, from the first that was not
finished. Fetching a page is a step too, and saving it is one commit with its step.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

from argus_celery import Argus, current
from examples.crawl import pages
from examples.crawl.fetch import fetch

DB = os.environ.get("CRAWL_DB", "sqlite:///crawl.db")

app = Celery("crawl", broker=f"argus+{DB}", backend="argus://")
app.conf.broker_connection_retry_on_startup = True
# Short times, so that nobody has to wait; a real app keeps the defaults.
argus = Argus(app, store=DB, lease_ttl=6, sweep_interval=1, dispatch_ttl=3)


@argus.durable
@app.task(name="crawl.crawl", autoretry_for=(OSError,), retry_backoff=1)
def crawl(start: str) -> dict[str, Any]:
    """All pages of a site that this one leads to; the answer sums them up."""
    level, urls = 0, [start]
    while urls:
        # Ten finished pages are noted at once: after a kill up to nine come again, and their steps are known.
        for url in current.each(urls, name=f"level {level}", batch=10):
            page = fetch(url)
            with current.transaction() as connection:
                current.step("save", pages.save, connection, page)
        level += 1
        with current.transaction() as connection:
            urls = current.step(f"urls {level}", pages.unvisited, connection)
    with current.transaction() as connection:
        return pages.sum_up(connection)
