"""Durable projects for Celery: a killed worker or a lost broker loses nothing and writes no result twice."""

from argus_celery import errors, signals
from argus_celery.app import Argus
from argus_celery.context import current
from argus_celery.hooks.durable import durable
from argus_celery.hooks.limits import Limit
from argus_celery.project import Project
from argus_celery.steps import step

__all__ = ["Argus", "Limit", "Project", "current", "durable", "errors", "signals", "step"]
