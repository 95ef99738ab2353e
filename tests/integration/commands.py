"""``celery argus …`` in this process: the exit code and the output of each call, without a start of Python."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from click.testing import CliRunner, Result

from argus_celery.cli import argus as group
from argus_celery.flow.claim import claim
from argus_celery.flow.complete import complete
from argus_celery.records import Claim, Delivery, Outcome, TaskState
from tests.integration.embedded import Shop


@dataclass
class Commands:
    shop: Shop

    def __call__(self, *arguments: str, code: int = 0, answer: str | None = None) -> Result:
        """Run a command, which must end with this code."""
        result = CliRunner().invoke(group, list(arguments), input=answer, obj=SimpleNamespace(app=self.shop.app))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code).stdout)

    def refused(self, *arguments: str, code: int = 1) -> str:
        """What it says to stderr, which is all it says."""
        result = self(*arguments, code=code)
        assert result.stdout == ""
        return str(result.stderr)

    def claimed(self, task_id: str, progress_timeout: float | None = None) -> Claim:
        """Its task begins to run, as if by a worker."""
        delivery = Delivery(task_id, self.shop.task(task_id).token)
        granted = claim(self.shop.argus.runtime, "w1", [delivery], progress_timeout=progress_timeout)[0]
        assert granted is not None
        return granted

    def ended(self, task_id: str, state: TaskState, error: str | None = None) -> None:
        complete(self.shop.argus.runtime, self.claimed(task_id), Outcome(state, error=error))
