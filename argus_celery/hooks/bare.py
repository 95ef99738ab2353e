"""A durable task whose app has no Argus is an ordinary one; the worker that has such tasks says so at its start."""

from __future__ import annotations

import logging
from typing import Any

from celery import Celery
from celery.signals import celeryd_after_setup

from argus_celery.hooks.attached import KEY
from argus_celery.hooks.durable import is_durable

logger = logging.getLogger(__name__)


def register() -> None:
    celeryd_after_setup.connect(_warn)


def _warn(instance: Any, **_: Any) -> None:
    names = [] if KEY in instance.app.__dict__ else _durable_names(instance.app)
    if names:
        logger.warning("argus: %s: decorated as durable, but nothing keeps them: call Argus(app)", ", ".join(names))


def _durable_names(app: Celery) -> list[str]:
    return sorted(task.name for task in app.tasks.values() if is_durable(task))
