"""Rule 18: a run that lives is renewed for as long as it takes; nobody else gets its task."""

from __future__ import annotations

from argus_celery.flow.complete import complete
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.renew import renew
from argus_celery.records import Outcome, TaskState
from tests.flow.conftest import FlowBench


def test_a_renewed_run_is_never_dispatched_however_long_it_takes(bench: FlowBench) -> None:
    claim = bench.running()
    for _ in range(50):
        bench.pass_time(5)
        assert renew(bench.rt, "w1", [(claim.task_id, claim.token)]).held
        report = dispatch(bench.rt)
        assert (report.lapsed, report.dispatched) == ((), ())
    complete(bench.rt, claim, Outcome(TaskState.SUCCEEDED))
    assert (bench.task(claim.task_id).attempts, bench.task(claim.task_id).losses) == (1, 0)


def test_a_renewal_gives_each_task_its_own_ttl(bench: FlowBench) -> None:
    short, long = bench.running(), bench.running(lease_ttl_ms=60_000)
    renew(bench.rt, "w1", [(one.task_id, one.token) for one in (short, long)])
    bench.pass_time(20)
    assert dispatch(bench.rt).lapsed == (short.task_id,)


def test_a_lapsed_lease_that_nobody_has_taken_can_still_be_renewed(bench: FlowBench) -> None:
    claim = bench.running()
    bench.pass_time(60)
    assert renew(bench.rt, "w1", [(claim.task_id, claim.token)]).held
    assert not dispatch(bench.rt).lapsed
