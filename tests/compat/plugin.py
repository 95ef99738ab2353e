"""The pytest plugin that the suite runs under: it gives the suite's apps an Argus, and notes how each test ended.

``ARGUS_COMPAT_STORE`` is the store's URL; without it nothing is installed, which is the baseline.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing import app as testing

from argus_celery import Argus

STORE = os.environ.get("ARGUS_COMPAT_STORE")
OUTCOMES = Path(os.environ["ARGUS_COMPAT_OUTCOMES"])


def pytest_configure() -> None:
    if STORE:
        testing.TestApp = _durable(testing.TestApp)


def _durable(make: Callable[..., Celery]) -> Callable[..., Celery]:
    def make_durable(*args: Any, **options: Any) -> Celery:
        app = make(*args, **options)
        Argus(app, store=STORE, durable_tasks=["*"])
        return app

    return make_durable


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: Any) -> None:
    """A line for each test that has ended, each subtest, and each error in a fixture."""
    if report.when == "call" or report.outcome != "passed":
        subtest = hasattr(report, "context")
        line = {"test": report.nodeid, "outcome": _outcome(report), "subtest": subtest, "why": _why(report)}
        line["seconds"] = report.duration
        with OUTCOMES.open("a") as file:
            file.write(json.dumps(line) + "\n")


def _outcome(report: Any) -> str:
    """A test that Celery expects to fail, and that passes, has passed."""
    return "passed" if str(report.longrepr).startswith("[XPASS(strict)]") else str(report.outcome)


def _why(report: Any) -> str:
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    if report.outcome == "failed":
        return str(getattr(getattr(report.longrepr, "reprcrash", None), "message", report.longrepr))[:300]
    return ""
