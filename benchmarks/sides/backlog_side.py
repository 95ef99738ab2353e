"""What ``restore.py`` has a producer do, beside the commands of ``celery_side``, whose app and tasks these are."""

from __future__ import annotations

import sys

from benchmarks.sides.celery_side import app, argus, tasks

SECONDS = 0.2
SCHEDULED_IN = 5.0
PAUSED, CANCELLED = 10_000, 20_000
"""Numbers from here on are of the project that is paused, and of that which is cancelled."""


def enqueue(count: int, scheduled: int) -> None:
    """The last of them are scheduled."""
    for number in range(count):
        countdown = SCHEDULED_IN if number >= count - scheduled else None
        tasks["work"].apply_async((number, SECONDS), countdown=countdown)


def pause(count: int) -> None:
    """Tasks that come into a paused project: plain Celery has nothing of the kind, and is sent none."""
    assert argus is not None
    project = argus.project("paused")
    project.pause()
    project.enqueue_many(tasks["work"].s(PAUSED + number, SECONDS) for number in range(count))


def resume(count: int) -> None:
    assert argus is not None
    argus.project("paused").resume()


def cancel(count: int) -> None:
    """Tasks that are called off as soon as they are enqueued."""
    if argus is None:
        sent = [tasks["work"].delay(CANCELLED + number, SECONDS).id for number in range(count)]
        app.control.revoke(sent)
        return
    project = argus.project("cancelled")
    project.enqueue_many(tasks["work"].s(CANCELLED + number, SECONDS) for number in range(count))
    project.cancel()


if __name__ == "__main__":
    command, *numbers = sys.argv[1:]
    {"enqueue": enqueue, "pause": pause, "resume": resume, "cancel": cancel}[command](*map(int, numbers))
