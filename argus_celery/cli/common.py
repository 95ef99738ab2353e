"""What the commands share: the app's Argus, errors as one sentence, "did you mean", JSON, times."""

from __future__ import annotations

import difflib
import functools
import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

import click

from argus_celery.cli.exits import Exit
from argus_celery.cli.tables import printable
from argus_celery.cli.tables import table as table
from argus_celery.errors import ArgusError, ProjectNotFound, StoreError
from argus_celery.records import ProjectInfo, ProjectStatus, Suspension, TaskState
from argus_celery.store import listings, reports, setup
from argus_celery.store.engine import Store

NO_APP = "this app has no Argus: give one with  celery -A your_app argus …, and call Argus(app) in it"

Command = Callable[..., None]


def with_argus(command: Command) -> Command:
    """Hand the command the app's Argus; an error of Argus is one sentence and exit code 1.

    A store that is not there yet is such an error: looking for something must not make it.
    """

    @functools.wraps(command)
    def looking(argus: Any, *args: Any, **options: Any) -> None:
        store = argus.runtime.store
        if store.is_absent:
            raise StoreError(f"there is no store yet: {setup.how_it_is_made(store)}")
        command(argus, *args, **options)

    return with_argus_alone(looking)


def with_argus_alone(command: Command) -> Command:
    """The same, whether or not there is a store."""

    @click.pass_context
    @functools.wraps(command)
    def wrapped(ctx: click.Context, *args: Any, **options: Any) -> None:
        try:
            command(_argus_of(ctx), *args, **options)
        except ArgusError as error:
            raise click.ClickException(printable(str(error))) from error

    return wrapped


def _argus_of(ctx: click.Context) -> Any:
    app = getattr(ctx.find_object(object), "app", None)
    argus = None if app is None else installed_on(app)
    if argus is None:
        raise click.ClickException(NO_APP)
    return argus


def installed_on(app: Any) -> Any:
    """The Argus of an app, whose modules are imported; None if it has none."""
    from argus_celery.app import Argus

    app.loader.import_default_modules()
    return Argus.of(app)


# --- names ---------------------------------------------------------------------------------------------------------


def did_you_mean(given: str, known: Sequence[str]) -> str:
    """What begins so comes first: ids are shown and copied by their beginning."""
    begun = [one for one in known if given and one.startswith(given)]
    near = begun or difflib.get_close_matches(given, known, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""


def project_called(store: Store, name: str) -> ProjectInfo:
    """Raises ``ProjectNotFound`` that names the near one."""
    project = reports.project_info(store, name)
    if project is None:
        raise ProjectNotFound(f"there is no project {name!r}.{did_you_mean(name, listings.project_names(store))}")
    return project


# --- output --------------------------------------------------------------------------------------------------------


def facts(lines: Sequence[tuple[str, Any]]) -> None:
    """Print labels and values below each other; what has no value is left out."""
    told = [(label, str(value)) for label, value in lines if value not in (None, "")]
    width = max((len(label) for label, _ in told), default=0) + 2
    for label, value in told:
        first, *rest = value.splitlines() or [""]
        click.echo(f"{label:<{width}}{printable(first)}")
        for line in rest:
            click.echo(" " * width + printable(line))


def echo_json(value: Any) -> None:
    """For programs: times in milliseconds, the names of fields as in the records."""
    click.echo(json.dumps(value, default=_as_object))


def _as_object(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)


def instant(milliseconds: int | None) -> str | None:
    """The store's milliseconds as local time."""
    if milliseconds is None:
        return None
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds / 1000))


def when(milliseconds: int | None) -> str | None:
    """The same in a list: to the minute, and without the year if it is this one."""
    told = instant(milliseconds)
    if told is None:
        return None
    return told[5:16] if told[:4] == time.strftime("%Y") else told[:16]


def span(milliseconds: int | float) -> str:
    """How long: ``350 ms``, ``4.2 s``, ``3 min``, ``5 h``, ``2 d``."""
    seconds = abs(milliseconds) / 1000
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, size, until in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < until:
            return f"{seconds / size:.{int(seconds < 10)}f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def waits_of(suspended: Suspension | None) -> str | None:
    """What a task waits for in the middle of its work, since when, and until when."""
    if suspended is None:
        return None
    until = None if suspended.until is None else f"until {when(suspended.until)}"
    if suspended.event is None:
        return f"sleeps {until}"
    return f"waits for {suspended.event!r} since {when(suspended.since)}" + (f", {until}" if until else "")


# --- projects ------------------------------------------------------------------------------------------------------


def status_of(project: ProjectInfo) -> str:
    return f"{project.status} (paused)" if project.paused and project.status.live else str(project.status)


def counts_of(project: ProjectInfo) -> str:
    """The states that occur: ``3 running, 7 succeeded``."""
    return in_words(project.counts)


def in_words(counts: Mapping[TaskState, int]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)


def said_of(project: ProjectInfo) -> str:
    """One sentence: what it is now."""
    return printable(f"{project.name} is {status_of(project)}: {counts_of(project) or 'no tasks'}")


def say_if_paused(store: Store, name: str) -> None:
    """Behind a command that has put work back: nobody is to wait for what nobody starts."""
    if project_called(store, name).paused:
        click.echo(printable(f"{name} is paused, and starts nothing until  argus resume {shlex.quote(name)}"), err=True)


def exit_code_of(project: ProjectInfo) -> Exit:
    bad = project.counts[TaskState.FAILED] + project.counts[TaskState.DEAD]
    return Exit.FAILURES if bad or project.status is ProjectStatus.FAILED else Exit.DONE
