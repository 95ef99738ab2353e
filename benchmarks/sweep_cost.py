"""What a probe, a sweep and a claim cost with 1,000 and with a million finished tasks behind them.

    python benchmarks/sweep_cost.py STORE_URL [STORE_URL …]      (an empty database each: its tables are dropped)

Prints a row per store and size: milliseconds (median of 20), and the ratio between the sizes.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from argus_celery.flow.dispatch import dispatch
from argus_celery.flow.restore import probe, sweep
from argus_celery.store.engine import Store
from argus_celery.store.schema import metadata
from tests.store.bench import Bench, fill

SIZES = (1_000, 1_000_000)
LIVE = 1_000


def main(urls: list[str]) -> None:
    print(f"{'store':12} {'finished':>10} {'probe':>8} {'sweep':>8} {'dispatch 20':>12} {'claim':>8}   (ms)")
    for url in urls:
        rows = [measure(url, size) for size in SIZES]
        for size, row in zip(SIZES, rows, strict=True):
            print(f"{row['store']:12} {size:>10,} " + " ".join(f"{row[name]:>8.2f}" for name in FIGURES))
        print(f"{'':12} {'ratio':>10} " + " ".join(f"{rows[1][name] / rows[0][name]:>8.2f}" for name in FIGURES))


FIGURES = ("probe", "sweep", "dispatch", "claim")


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
    result["dispatch"] = median_ms(lambda: dispatch(bench.rt, 20))
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
    main(sys.argv[1:])
