"""The state machine on each database. ``ARGUS_MODEL_EXAMPLES`` asks for more lives than a test run has time for,
``ARGUS_MODEL_SHRINK=1`` for the shortest life that fails, which takes minutes."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import Protocol

LIVES = {"sqlite": 40, "postgresql": 15, "mysql": 15}


@pytest.mark.slow
@pytest.mark.timeout(480)
def test_no_life_of_the_store_breaks_its_invariants(store_url: str) -> None:
    machine = type("ProtocolOnThisStore", (Protocol,), {"url": store_url})
    lives = int(os.environ.get("ARGUS_MODEL_EXAMPLES", LIVES[store_url.split("+")[0].split(":")[0]]))
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=lives,
            stateful_step_count=60,
            deadline=None,
            database=None,
            phases=[Phase.generate, *([Phase.shrink] if "ARGUS_MODEL_SHRINK" in os.environ else [])],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
