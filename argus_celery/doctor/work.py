"""The work there is, and whether anybody does it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from argus_celery.config import counted
from argus_celery.doctor.findings import Check, Finding, Level
from argus_celery.hooks.holder import is_dead_seen_from_here
from argus_celery.hooks.loop import SEEN_INTERVAL
from argus_celery.store import backlog, holders, inspection, pruning, waits
from argus_celery.store.pruning import Ages

ANSWER = 1.0
"""Seconds that workers are given to answer."""
ALIVE_MS = round(1.5 * SEEN_INTERVAL * 1000)
DAY_MS = 24 * 3600 * 1000
HOUR_MS = 3600 * 1000
SHOWN = 5
"""How many of a kind are named."""


def consumers(argus: Any) -> Iterator[Finding]:
    """Each queue with work has a worker that consumes it."""
    store = argus.runtime.store
    queues = store.statement(inspection.queues_with_work)
    alive = _alive(argus)
    if not alive:
        level = Level.WARNING if queues else Level.OK
        waiting = f", and {_waiting(sum(queues.values()))}" if queues else ""
        yield Finding(
            level,
            CONSUMERS.name,
            f"no worker with Argus is there{waiting}",
            f"start one: celery -A {argus.app.main or 'your_app'} worker -Q {','.join(sorted(queues))}"
            if queues
            else "",
        )
        return
    answers = _asked(argus, "active_queues")
    consumed = {queue["name"] for queues_of in answers.values() for queue in queues_of or ()}
    orphans = {queue: count for queue, count in queues.items() if queue not in consumed}
    silent = sorted(alive - answers.keys())
    if orphans and silent:
        yield _silent(CONSUMERS, f"whether somebody consumes {_few(orphans)}", silent)
    elif orphans:
        for queue, count in sorted(orphans.items()):
            yield Finding(
                Level.WARNING,
                CONSUMERS.name,
                f"no worker consumes the queue {queue!r}, and {_waiting(count)} for it",
                f"start a worker with -Q {queue}, or let one consume it: celery control add_consumer {queue}",
            )
    else:
        yield CONSUMERS.ok(
            f"{counted(len(queues), 'queue')} with work, each consumed by one of {counted(len(alive), 'worker')}"
        )


def names(argus: Any) -> Iterator[Finding]:
    """Each task that lives is known to some worker."""
    store = argus.runtime.store
    met = store.statement(lambda connection: inspection.unknown(store, connection))
    for one in met:
        yield Finding(
            Level.WARNING,
            NAMES.name,
            f"{counted(one.count, 'task')} of the name {one.name} met only workers that lack its code, for"
            f" {one.since_ms / 1000:.0f} s",
            "deploy the code to the workers of its queue; after argus_unknown_deadline they become dead letters",
        )
    living = store.statement(inspection.live_names)
    answers = _asked(argus, "registered") if living else {}
    known = {name.partition(" [")[0] for of_one in answers.values() for name in of_one or ()}
    strange = {name: count for name, count in living.items() if name not in known and name not in {m.name for m in met}}
    silent = sorted(_alive(argus) - answers.keys())
    if strange and (silent or not answers):
        yield _silent(NAMES, f"whether somebody knows {_few(strange)}", silent)
    for name, count in sorted(strange.items()) if answers and not silent else ():
        yield Finding(
            Level.WARNING,
            NAMES.name,
            f"no worker knows {name}, and {_waiting(count)} for its code",
            "deploy its code, or mend the name; celery -A … inspect registered shows what workers know",
        )
    if not met and not strange:
        yield NAMES.ok(
            f"a worker knows each of the {counted(len(living), 'task name')} with work" if living else "no work waits"
        )


def overdue(argus: Any) -> Iterator[Finding]:
    """What is due goes out within a sweep or two, if somebody sweeps."""
    store, patience = argus.runtime.store, 3 * argus.settings.sweep_interval + 60
    heads = store.statement(lambda connection: backlog.heads(store, connection))
    # Between two refills a window that is in use has some room.
    half = argus.settings.dispatch_window / 2
    full = {queue for queue, n in store.statement(backlog.in_broker).items() if n >= half}
    held = [heads.held] if heads.held is not None else []
    unsent = [level.first for level in heads.levels if level.queue not in full]
    late = heads.now - min([*held, *unsent], default=heads.now)
    behind = {level.queue: level.first for level in heads.due_levels() if level.queue in full}
    if late <= patience * 1000 and behind:
        oldest = (heads.now - min(behind.values())) / 1000
        yield OVERDUE.ok(f"the backlog of {_few(behind)} waits for room in the dispatch window, oldest {oldest:.0f} s")
    elif late <= patience * 1000:
        yield OVERDUE.ok("nothing that is due waits for somebody to send it")
    else:
        yield Finding(
            Level.WARNING,
            OVERDUE.name,
            f"a task has been due for {late / 1000:.0f} s and nobody sends it: no worker, beat or sweep is at work",
            f"start a worker or beat, or celery -A {argus.app.main or 'your_app'} argus sweep",
        )


def debts(argus: Any) -> Iterator[Finding]:
    store = argus.runtime.store
    count, oldest = store.statement(lambda connection: inspection.debts(store, connection))
    if oldest is not None and oldest > HOUR_MS:
        yield Finding(
            Level.WARNING,
            DEBTS.name,
            f"{counted(count, 'outcome')} {'is' if count == 1 else 'are'} owed to the result backend or to what"
            f" follows, for up to {oldest / 1000:.0f} s",
            "workers log why (“could not be delivered yet”): the backend is away, or the code of a task is gone",
        )
    else:
        yield DEBTS.ok("no outcome is owed for long")


def pruned(argus: Any) -> Iterator[Finding]:
    """A day after its time, what has ended should be gone."""
    store = argus.runtime.store
    ages = argus.ages()
    late = Ages(ages.ended + DAY_MS, ages.results)
    ended = store.statement(lambda c: pruning.ended_projects(store, c, late.ended, 0, 2))
    tasks = store.statement(lambda c: pruning.open_projects(store, c, late, 0, 1))
    if len(ended) > 1 or tasks:  # the row of the newest project stays
        yield Finding(
            Level.WARNING,
            PRUNED.name,
            "projects or tasks are past argus_retention for more than a day: no worker prunes, or they are still owed",
            f"celery -A {argus.app.main or 'your_app'} argus prune --yes",
        )
    else:
        yield PRUNED.ok("what is past argus_retention is gone")


def endless(argus: Any) -> Iterator[Finding]:
    """Who waits for an event without a timeout, and nobody tells it, waits for ever."""
    store, command = argus.runtime.store, f"celery -A {argus.app.main or 'your_app'} argus"
    found = store.statement(lambda connection: waits.endless(store, connection, DAY_MS, SHOWN))
    for one in found:
        yield Finding(
            Level.WARNING,
            ENDLESS.name,
            f"task {one.task_id} of {one.project} has waited for the event {one.event!r} for {one.ms / DAY_MS:.0f} d",
            f"{command} send {one.project!r} {one.event!r}, or cancel it; give current.wait_for a timeout",
        )
    if not found:
        yield ENDLESS.ok("no task has waited for an event for more than a day without a timeout")


def _alive(argus: Any) -> set[str]:
    """The nodes of workers that were seen of late, and have neither signed off nor died where this process can tell."""
    store = argus.runtime.store
    lately = store.statement(lambda connection: holders.lately(store, connection, ALIVE_MS))
    return {one.node for one in lately if not is_dead_seen_from_here(one)}


def _waiting(count: int) -> str:
    return f"{counted(count, 'task')} {'waits' if count == 1 else 'wait'}"


def _asked(argus: Any, question: str) -> Mapping[str, Any]:
    """What workers answer, by node; none where nobody does."""
    answers: Mapping[str, Any] | None = getattr(argus.app.control.inspect(timeout=ANSWER), question)()
    return answers or {}


def _silent(check: Check, what: str, nodes: list[str]) -> Finding:
    who = _few(nodes) if nodes else "no worker"
    verb = "did not answer" if nodes else "answered"
    return Finding(Level.UNKNOWN, check.name, f"{what} is not known: {who} {verb} (worker_enable_remote_control?)")


def _few(given: Any) -> str:
    known = sorted(given)
    return ", ".join(known[:3]) + (f" and {len(known) - 3} more" if len(known) > 3 else "")


CONSUMERS = Check("queues", consumers)
NAMES = Check("tasks", names)
OVERDUE = Check("dispatch", overdue)
DEBTS = Check("debts", debts)
PRUNED = Check("retention", pruned)
ENDLESS = Check("waits", endless)
CHECKS = (CONSUMERS, NAMES, OVERDUE, DEBTS, PRUNED, ENDLESS)
