"""Parts of an app whose class is a setting (amqp, control): each gets a mixin, also on an app that is in use."""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.utils.imports import symbol_by_name


def mix_in(app: Celery, part: str, mixin: type[Any], plain: type[Any]) -> Any:
    """Have the app's part bear the mixin; returns the one that was made already, if it was changed.

    ``plain`` is the mixin over Celery's own class, for the app that names none of its own.
    """
    setting = f"{part}_cls"
    theirs = symbol_by_name(getattr(app, setting))
    if not issubclass(theirs, mixin):
        mixed = plain if theirs in plain.__bases__ else type(theirs.__name__, (mixin, theirs), {})
        setattr(app, setting, mixed)
    made = app.__dict__.get(part)
    if made is None or isinstance(made, mixin):
        return None
    made.__class__ = symbol_by_name(getattr(app, setting))
    return made
