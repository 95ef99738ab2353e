"""The durable side alone, on the servers and workers of docker-compose.yml: ``python -m examples.stdlib.compose``.

Each module's path is its key, so that running it again, or after it was killed, enqueues nothing twice.
"""

from __future__ import annotations

import sys
import time

from rich.progress import Progress

from argus_celery.project import Project
from examples.stdlib import modules, results
from examples.stdlib.durable import argus, database, parse, sum_up

SECONDS = 300


def main() -> int:
    results.make(database)
    paths = modules.find()
    project = argus.project("standard library")
    project.enqueue_many(parse.s(path).set(argus_key=path) for path in paths)
    watch(project, len(paths))
    found = modules.Sum(**sum_up.delay().get(timeout=60))
    right = found == modules.sum_of(map(modules.facts_of, paths))
    print(f"{found.modules} modules, {found.lines:,} lines: {'right' if right else 'NOT what one process counts'}")
    return 0 if right else 1


def watch(project: Project, total: int) -> None:
    """A progress bar until every module's task has ended."""
    ends = time.monotonic() + SECONDS
    with Progress() as progress:
        bar = progress.add_task(project.name, total=total)
        while (ended := project.progress().ended) < total and time.monotonic() < ends:
            progress.update(bar, completed=ended)
            time.sleep(0.2)
        progress.update(bar, completed=ended)
    project.join(timeout=max(1, ends - time.monotonic()))


if __name__ == "__main__":
    sys.exit(main())
