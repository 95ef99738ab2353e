"""What ``kill_after`` may be given: refused in the test's own process, before anything runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

from celery import Celery
from celery.app.task import Task
from celery.canvas import Signature
from celery.local import Proxy

from argus_celery.app import Argus
from argus_celery.config import PREFIX, Settings, did_you_mean
from argus_celery.errors import SettingError
from argus_celery.testing.watching import EFFECT, POINTS

__tracebackhide__ = True
OWN = ("app", "points", "prepare", "idle", "state", "most", "timeout")
_OF_THE_TEST = "store_url"


def check_work(work: Any, args: Any, kwargs: Any, app: Any) -> None:
    """Raises ``TypeError``."""
    if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
        raise TypeError(f"kill_after: args is a list of arguments, not {args!r:.100}: kill_after(task, [17])")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TypeError(f"kill_after: kwargs is a dict of arguments, not {kwargs!r:.100}")
    if app is None and not isinstance(work, (Task, Signature, Proxy)):
        raise TypeError(
            f"kill_after takes a task, or a function that enqueues together with app=, not {work!r:.100}:"
            " kill_after(task, [17]), or kill_after(function, app=app)"
        )
    if app is not None and (not isinstance(app, Celery) or Argus.of(app) is None):
        raise TypeError(f"kill_after(app=...) is a Celery app with Argus, not {app!r:.100}")
    if app is not None and not callable(work):
        raise TypeError(f"kill_after(..., app=app) takes a function that enqueues, not {work!r:.100}")


def check_calls(**calls: Callable[[], Any] | None) -> None:
    """Raises ``TypeError``."""
    for name, call in calls.items():
        if call is not None and not callable(call):
            raise TypeError(
                f"kill_after({name}=...) is a function without arguments, not {call!r:.100}: do not call it"
            )


def check_kinds(kinds: Collection[str]) -> None:
    known = (*POINTS, EFFECT)
    if not kinds:
        raise ValueError(f"points: name at least one kind. Known: {', '.join(known)}")
    for kind in kinds:
        if kind not in known:
            raise ValueError(f"points: there is no {kind!r}.{did_you_mean(str(kind), list(known))}")


def check_numbers(most: Any, timeout: Any) -> None:
    """Raises ``ValueError``."""
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise ValueError(f"kill_after(most=...) must be a whole number of at least 1, not {most!r}")
    is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout < math.inf:
        raise ValueError(f"kill_after(timeout=...) must be a number of seconds above 0, not {timeout!r}")


def check_settings(url: str, settings: Mapping[str, Any], options: Collection[str] = ()) -> None:
    """Raises ``TypeError`` for what is neither an option nor a setting, and ``SettingError`` for a value."""
    known = [field.name for field in fields(Settings) if field.name != _OF_THE_TEST]
    for name in settings:
        if name == _OF_THE_TEST:
            raise TypeError(
                f"{name} is the test's own: override the fixture argus_store_url to choose another database"
            )
        if name not in known:
            raise TypeError(f"there is no option or setting {name!r}.{did_you_mean(name, [*options, *known])}")
    given = {PREFIX + name: value for name, value in settings.items() if value is not None}
    try:
        Settings.from_mapping({f"{PREFIX}{_OF_THE_TEST}": url, **given})
    except SettingError as error:
        raise SettingError(f"of the test: {error}") from None
