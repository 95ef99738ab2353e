"""What a project of ten waits beside one of a hundred thousand that came first, and what a long line of a limit costs.

    ./dev bench fairness STORE_URL [--large 100000] [--write]      (an empty database: its tables are dropped)

No broker and no processes: messages are taken in the order in which they were published and end at once, so that the
figures are those of the store's decisions. Times are wall clock; how many tasks of the large project end before the
small one's last does not depend on the machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from argus_celery.flow.claim import claim
from argus_celery.flow.complete import complete_many
from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.enqueue import enqueue
from argus_celery.records import Bound, Delivery, NewTask, Outcome, TaskState
from argus_celery.store.engine import Store
from argus_celery.store.schema import metadata
from benchmarks.harness.report import Report, parser
from tests.store.bench import Bench, new_task

SMALL = 10
AT_ONCE = 20
"""Tasks that run at once."""
DONE = Outcome(TaskState.SUCCEEDED)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("store")
    made.add_argument("--large", type=int, default=100_000)
    options = made.parse_args()
    report = Report("fairness", options.write)
    rows = [["window", "beside", "ended before", "seconds"]]
    for window in (1_000, 100):
        for large in (0, options.large):
            ended, seconds = small_beside(options.store, window, large)
            rows.append([f"{window:,}", f"{large:,}", f"{ended:,}", f"{seconds:.2f}"])
    report.table(rows)
    lines = [[f"{line:,}", *line_of(options.store, line)] for line in (10, options.large)]
    report.table([["line of", "dispatch of another task, ms", "end and next of the line, ms"], *lines])
    report.close()


def small_beside(url: str, window: int, large: int) -> tuple[int, float]:
    """How many others ended before the last of the small project, and its seconds from its enqueue on."""
    bench = emptied(url, window)
    fill(bench, large, lambda: new_task(project="large"))
    small = {one.task_id for one in enqueue(bench.rt, [new_task(project="small") for _ in range(SMALL)])}
    began, ended = time.perf_counter(), 0
    while small:
        if len(bench.sent) < AT_ONCE:
            dispatch(bench.rt)
        batch, bench.sent[:] = bench.sent[:AT_ONCE], bench.sent[AT_ONCE:]
        claims = [one for one in claim(bench.rt, "w1", [Delivery(d.task_id, d.token) for d in batch]) if one]
        complete_many(bench.rt, [(one, DONE) for one in claims])
        ended += sum(one.task_id not in small for one in claims)
        small -= {one.task_id for one in claims}
    return ended, time.perf_counter() - began


def line_of(url: str, length: int) -> list[str]:
    bench = emptied(url, 1_000)
    fill(bench, length, lambda: new_task(limits=(Bound("one", 1),)))
    others, ends = [], []
    for _ in range(20):
        bench.enqueue(delay_ms=1)
        bench.pass_time(0.01)
        others.append(timed(lambda: dispatch(bench.rt)))
        bench.sent[:] = [one for one in bench.sent if bench.lease(one.task_id).limited]
        one = bench.claim(task_id=bench.sent[0].task_id)
        assert one is not None
        bench.sent.clear()
        ends.append(timed(lambda one=one: complete_many(bench.rt, [(one, DONE)])))  # type: ignore[misc]
        if not bench.sent:
            break
    return [f"{statistics.median(values):.2f}" for values in (others, ends)]


def emptied(url: str, window: int) -> Bench:
    store = Store(url)
    metadata.drop_all(store.engine)
    metadata.create_all(store.engine)
    return Bench(store, settings={"dispatch_window": window, "dispatch_ttl": 6000.0, "dispatch_ttl_max": 6000.0})


def fill(bench: Bench, number: int, make: Callable[[], NewTask]) -> None:
    for start in range(0, number, 500):
        enqueue(bench.rt, [make() for _ in range(min(500, number - start))])


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    main()
