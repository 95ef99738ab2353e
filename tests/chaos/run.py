"""One run: let the adversary at the world, wait until all is over, gather the evidence and judge it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from celery import Celery

from argus_celery.flow.outage import wait_out
from argus_celery.store.schema import leases
from tests.chaos import evidence as gathered
from tests.chaos.adversary import Adversary, Done
from tests.chaos.bodies import register
from tests.chaos.evidence import Evidence
from tests.chaos.judge import BEGUN, Violation, judge
from tests.chaos.options import Options
from tests.chaos.recovery import Recoveries
from tests.chaos.report import Result, counted
from tests.chaos.work import call
from tests.chaos.world import World, open_world, own_queue
from tests.faults.app import make_app
from tests.faults.journal import commit
from tests.faults.nodes import BOOT
from tests.invariants import check_all_ended

SETTLING = 240.0
"""Seconds in which what is under way when the work stops has to end."""


@dataclass(frozen=True)
class Verdict:
    result: Result
    violations: list[Violation]


def run(options: Options, folder: Path) -> Verdict:
    """Everything it leaves behind is in ``folder``: ledger, the producer's list, logs."""
    with open_world(options, folder) as world:
        for slot in world.workers:
            assert slot.node is not None
            slot.node.wait_ready()
        adversary = Adversary(world)
        adversary.rage(time.monotonic() + options.minutes * 60)
        settle(world, adversary)
        silent = call_the_roll(world)
        for slot in world.slots:
            slot.end()
        world.progress.read_on()
        evidence = gather(world, adversary, silent)
    return verdict(options, evidence, adversary.done)


def settle(world: World, adversary: Adversary) -> None:
    """No more work is sent; wait until none is left, or for as long as that may take."""
    world.stop_sending()
    deadline = time.monotonic() + SETTLING
    while time.monotonic() < deadline and (world.producer.running or alive(world)):
        adversary.look_after()


def alive(world: World) -> int:
    query = sa.select(sa.func.count()).select_from(leases)
    return int(wait_out(lambda: world.store.statement(lambda connection: connection.execute(query).scalar_one())))


def call_the_roll(world: World) -> list[str]:
    """Workers that do not take a task of their own any more."""
    app: Celery = make_app(world.setup, producer=True, register=register)
    tags = {f"roll.{slot.name}": slot.name for slot in world.workers}
    for tag, name in tags.items():
        call(app, "quick", tag, queue=own_queue(name))
    deadline = time.monotonic() + BOOT
    while time.monotonic() < deadline and not (tags.keys() <= world.progress.done and not alive(world)):
        world.progress.read_on()
        time.sleep(0.1)
    app.close()
    return [name for tag, name in tags.items() if tag not in world.progress.done]


def gather(world: World, adversary: Adversary, silent: list[str]) -> Evidence:
    return Evidence(
        expected=gathered.expected_of(world),
        lines=world.progress.lines,
        rows=gathered.final_rows(world),
        effects=gathered.written_effects(world),
        stopped=set().union(*(one.hit.pids for one in adversary.done if one.kind.stops)),
        died=adversary.died,
        silent=silent,
        broken=broken_invariants(world),
    )


def broken_invariants(world: World) -> str:
    try:
        check_all_ended(world.store)
    except AssertionError as error:
        return str(error)
    return ""


def verdict(options: Options, evidence: Evidence, faults: list[Done]) -> Verdict:
    violations = judge(evidence)
    known = Recoveries(evidence.lines)
    recoveries: dict[str, list[float]] = {}
    for one in faults:
        seconds = known.of(one.began, one.healed, one.hit, outage=one.kind.outage)
        if seconds is not None:
            recoveries.setdefault(one.kind.name, []).append(round(seconds, 2))
    result = Result(
        broker=options.broker,
        store=options.store,
        seed=options.seed,
        command=options.command,
        tasks=len(evidence.rows),
        runs=sum(line.event in BEGUN for line in evidence.lines),
        refused=sum(line.event == "refused" for line in evidence.lines),
        faults=dict(Counter(one.kind.name for one in faults)),
        recoveries=recoveries,
        violations=counted(one.kind for one in violations),
        commit=commit(),
    )
    return Verdict(result, violations)
