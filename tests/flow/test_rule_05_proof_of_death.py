"""Rule 5: recovery matches on expiry or on proof of death, never on a name."""

from __future__ import annotations

from argus_celery.flow.restore import restore, sweep
from argus_celery.records import HolderFacts
from tests.flow.conftest import FlowBench

NODE = "celery@shop"


def facts(holder: str, *, host: str = "here", pid: int = 1, node: str = NODE) -> HolderFacts:
    return HolderFacts(holder, node, host, pid, "boot", "namespace", "start")


def nobody(_: HolderFacts) -> bool:
    return False


def test_a_worker_of_the_same_name_takes_nothing_from_a_living_one(bench: FlowBench) -> None:
    restore(bench.rt, facts("w1"), nobody)
    claim = bench.running("w1")
    restore(bench.rt, facts("w2"), nobody)
    assert bench.lease(claim.task_id).holder == "w1"


def test_a_dead_workers_tasks_go_out_at_the_boot_of_any_worker_of_its_host(bench: FlowBench) -> None:
    restore(bench.rt, facts("w1", pid=4711), nobody)
    claims = [bench.running("w1") for _ in range(3)]
    report = restore(bench.rt, facts("w2", node="celery@elsewhere"), lambda one: one.pid == 4711)
    assert sorted(report.dispatched) == sorted(one.task_id for one in claims)
    assert bench.claim("w2", claims[0].task_id) is not None


def test_a_second_restore_finds_nothing(bench: FlowBench, other: FlowBench) -> None:
    restore(bench.rt, facts("w1", pid=4711), nobody)
    bench.running("w1")
    assert restore(bench.rt, facts("w2"), lambda one: one.pid == 4711).dispatched
    assert not restore(other.rt, facts("w3"), lambda one: one.pid == 4711).dispatched


def test_the_proof_holds_on_the_same_host_only(bench: FlowBench) -> None:
    restore(bench.rt, facts("w1", host="there"), nobody)
    claim = bench.running("w1")
    restore(bench.rt, facts("w2", host="here"), lambda one: True)
    assert bench.lease(claim.task_id).holder == "w1"
    bench.pass_time(7)
    assert sweep(bench.rt).dispatched == (claim.task_id,)


def test_a_worker_never_takes_itself_for_dead(bench: FlowBench) -> None:
    restore(bench.rt, facts("w1"), nobody)
    claim = bench.running("w1")
    sweep(bench.rt, facts("w1"), lambda one: True)
    assert bench.lease(claim.task_id).holder == "w1"


def test_a_holder_that_left_no_facts_is_waited_for(bench: FlowBench) -> None:
    claim = bench.running("w1")
    restore(bench.rt, facts("w2"), lambda one: True)
    assert bench.lease(claim.task_id).holder == "w1"
