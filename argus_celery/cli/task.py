"""``argus task ID``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from argus_celery.cli import ids, options
from argus_celery.cli.common import echo_json, facts, instant, span, table, waits_of, with_argus
from argus_celery.cli.exits import Exit
from argus_celery.cli.tables import printable
from argus_celery.cli.whys import ids_of, last_line, told_limit
from argus_celery.config import counted
from argus_celery.errors import TaskNotFound
from argus_celery.records import QUEUE, AttemptInfo, Message, StepInfo, TaskState
from argus_celery.store import details
from argus_celery.store.details import LeaseInfo, TaskDetails
from argus_celery.store.leases import PARKED


@click.command("task")
@ids.argument
@options.as_json
@with_argus
def command(argus: Any, task_id: str, as_json: bool) -> None:
    """One task: attempts, steps, message, error, and what it waits for. Exit code 3 if it failed or is dead.

    Of its ID a beginning will do that no other task has.
    """
    store = argus.runtime.store
    found = details.task_details(store, ids.task_called(store, task_id))
    if found is None:
        raise TaskNotFound(f"task {task_id!r} is gone: it was pruned just now")
    if as_json:
        echo_json(_as_object(found))
    else:
        _print(found)
    bad = found.info.state in (TaskState.FAILED, TaskState.DEAD)
    click.get_current_context().exit(Exit.FAILURES if bad else Exit.DONE)


def _print(task: TaskDetails) -> None:
    info = task.info
    facts(
        [
            ("task", info.id),
            ("name", info.name),
            ("project", info.project),
            ("key", info.key),
            ("state", ", ".join([str(info.state), *_why(task)])),
            ("attempts", f"{info.attempts}, with {info.retries} retries and {info.losses} of {task.max_losses} losses"),
            ("steps", f"{task.step_count} finished" if task.step_count else None),
            ("token", info.token),
            ("created", instant(info.created_at)),
            ("ended", instant(info.finished_at)),
            *_message(task.message),
            ("after", _parents(task)),
            ("parent", task.parent_id),
            ("root", task.root_id if task.root_id != info.id else None),
            ("group", task.group_id),
            ("error", info.error),
        ]
    )
    rows = [_attempt(task, attempt) for attempt in task.attempts]
    click.echo()
    table(["token", "how it ended", "by", "started", "ran for", "then silent", "detail"], rows, under="detail")
    _print_steps(task)


def _print_steps(task: TaskDetails) -> None:
    if not task.steps:
        return
    click.echo()
    if task.step_count > len(task.steps):
        click.echo(f"the last {len(task.steps)} of {task.step_count} steps:")
    rows = [[one.token, instant(one.finished_at), _size(one), one.name] for one in task.steps]
    table(["token", "finished", "value", "step"], rows)


def _size(step: StepInfo) -> str | None:
    return None if step.size is None else counted(step.size, "byte")


def _why(task: TaskDetails) -> Iterator[str]:
    """Why it is not over yet, in words that follow its state."""
    lease, now = task.lease, task.now
    if lease is None:
        return
    if lease.paused:
        waits = task.info.state is TaskState.WAITING
        yield "parked with its project" if waits else "and not again while its project is paused"
    if task.info.waits_for:
        yield f"waits for {len(task.info.waits_for)} of {len(task.parents)}: {ids_of(task.info.waits_for)}"
    if task.info.limit is not None:
        yield f"waits for {told_limit(task.info)}"
    if lease.waits or lease.limited:
        return
    if task.info.suspended is not None:
        yield str(waits_of(task.info.suspended))
        return
    if task.info.state is TaskState.RUNNING:
        yield f"by {task.nodes.get(task.info.holder, task.info.holder)}"
        if lease.started_at is not None:
            yield f"for {span(now - lease.started_at)}"
    yield _when(task.info.state, lease, now)
    if lease.progress_until is not None:
        yield f"has to show progress within {span(max(0, lease.progress_until - now))}"
    if lease.expires_at is not None:
        yield f"expires in {span(lease.expires_at - now)}" if lease.expires_at > now else "has expired"


def _when(state: TaskState, lease: LeaseInfo, now: int) -> str:
    left = lease.eligible_at - now
    if lease.eligible_at >= PARKED:
        return "replaced, and goes on when its successor's message has come"
    if state is TaskState.WAITING:
        return f"due in {span(left)}" if left > 0 else f"due for {span(left)}"
    if state is TaskState.RUNNING:
        return f"its lease lapses in {span(left)}" if left > 0 else f"its lease lapsed {span(left)} ago"
    sent = f"sent {lease.dispatches} times" if lease.dispatches > 1 else "sent"
    again = f"again in {span(left)}, sooner if a worker has nothing to do" if left > 0 else "again now"
    return f"{sent}, and not begun: in the broker, or fetched by a busy or dead worker; {again}"


def _parents(task: TaskDetails, most: int = 20) -> str:
    """What it comes after, each with its state; those it waits for are the ones that have not ended."""
    lines = [f"{parent.id}  {printable(parent.name)}  {parent.state}" for parent in task.parents[:most]]
    more = len(task.parents) - most
    return "\n".join([*lines, f"and {more} more"] if more > 0 else lines)


def _message(message: Message | None) -> list[tuple[str, Any]]:
    """Not its body, which may be long or secret: what Celery itself shows of the arguments."""
    if message is None:
        return [("message", "none: only a result is kept")]
    headers = message.headers
    sent_to = f"{message.exchange or 'the default exchange'} / {message.routing_key}"
    return [
        ("args", headers.get("argsrepr")),
        ("kwargs", headers.get("kwargsrepr") if headers.get("kwargsrepr") != "{}" else None),
        ("queue", message.queue),
        ("sent to", sent_to if sent_to != f"the default exchange / {message.queue}" else None),
        ("message", f"{counted(len(message.body), 'byte')} of {message.content_type}"),
        ("eta", headers.get("eta")),
    ]


def _attempt(task: TaskDetails, one: AttemptInfo) -> list[Any]:
    by = "the queue" if one.holder == QUEUE else task.nodes.get(one.holder, one.holder)
    known = one.known_until
    ran = span(known - one.started_at) if one.started_at is not None else None
    silent = span(one.finished_at - known) if one.finished_at > known else None
    how = "killed" if one.died else one.outcome
    return [one.token, how, by, instant(one.started_at), ran, silent, last_line(one.detail)]


def _as_object(task: TaskDetails) -> dict[str, Any]:
    from dataclasses import asdict

    message = task.message
    return {
        **asdict(task.info),
        "now": task.now,
        "max_losses": task.max_losses,
        "parent_id": task.parent_id,
        "root_id": task.root_id,
        "group_id": task.group_id,
        "node": task.nodes.get(task.info.holder),
        "after": [parent.id for parent in task.parents],
        "lease": task.lease,
        "message": None
        if message is None
        else {
            "args": message.headers.get("argsrepr"),
            "kwargs": message.headers.get("kwargsrepr"),
            "exchange": message.exchange,
            "routing_key": message.routing_key,
            "content_type": message.content_type,
            "size": len(message.body),
        },
        "step_count": task.step_count,
        "steps": task.steps,
        "history": [
            {**asdict(one), "known_until": one.known_until, "node": task.nodes.get(one.holder)} for one in task.attempts
        ],
    }
