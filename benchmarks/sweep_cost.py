"""What a probe, a sweep and a claim cost with 1,000 and with a million finished tasks behind them.

    ./dev bench sweep_cost STORE_URL [STORE_URL …] [--write]      (an empty database each: its tables are dropped)

Prints a row per store and size: milliseconds (median of 20), and the ratio between the sizes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.restore import probe, sweep
from argus_celery.store.engine import Store
from argus_celery.store.schema import metadata
from benchmarks.harness.report import Report, parser
from tests.store.bench import Bench, fill

SIZES = (1_000, 1_000_000)
LIVE = 1_000


def main() -> None:
    made = parser(__doc__)
    made.add_argument("store", nargs="+")
    options = made.parse_args()
    report = Report("sweep_cost", options.write)
    table = [["store, ms", "finished", *FIGURES]]
    for url in options.store:
        rows = [measure(url, size) for size in SIZES]
        for size, row in zip(SIZES, rows, strict=True):
            table.append([row["store"], f"{size:,}", *(f"{row[name]:.2f}" for name in FIGURES)])
        table.append(["", "÷", *(f"{rows[1][name] / rows[0][name]:.2f}" for name in FIGURES)])
    report.table(table)
    report.close()


FIGURES = ("probe", "sweep", "dispatch 20", "claim")


def measure(url: str, finished: int) -> dict[str, Any]:
    store = Store(url)
    metadata.drop_all(store.engine)
    metadata.create_all(store.engine)
    bench = Bench(store)
    bench.enqueue()
    fill(store, finished, LIVE)
    result: dict[str, Any] = {"store": store.dialect_name}
    result["probe"] = median_ms(lambda: probe(bench.rt))
    result["sweep"] = median_ms(lambda: sweep(bench.rt))
    for _ in range(20 * 20):
        bench.enqueue(delay_ms=1)
    bench.pass_time(1)
    result["dispatch 20"] = median_ms(lambda: dispatch(bench.rt, 20))
    result["claim"] = median_ms(lambda: (bench.claim(), bench.sent.pop()))
    metadata.drop_all(store.engine)
    store.dispose()
    return result


def median_ms(work: Callable[[], Any], times: int = 20) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
