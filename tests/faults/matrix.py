"""On which combinations a case is run: the whole matrix, or a pairwise cover of it. Pure and the same in each run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from itertools import combinations, product

BROKERS = ("redis", "rabbitmq", "argus")
STORES = ("sqlite", "postgres", "mariadb")
ACKS = ("early", "late")
POOLS = ("prefork", "threads", "solo", "gevent")

PREFORK = ("prefork",)
PARALLEL = ("prefork", "threads", "gevent")
SERVERS = ("postgres", "mariadb")
NETWORKED = ("redis", "rabbitmq")
ONE: dict[str, Sequence[str]] = {"acks": ("early",), "pools": ("threads",)}
"""For what has nothing to do with how a worker runs."""


@dataclass(frozen=True, slots=True)
class Combination:
    broker: str
    store: str
    ack: str
    pool: str

    def __str__(self) -> str:
        return "-".join(astuple(self))


@dataclass(frozen=True, slots=True)
class Case:
    """One failure case and the places where it makes sense."""

    name: str
    about: str
    brokers: Sequence[str] = BROKERS
    stores: Sequence[str] = STORES
    acks: Sequence[str] = ACKS
    pools: Sequence[str] = POOLS
    fails_on_stock: bool = True

    def combinations(self) -> Iterator[Combination]:
        for values in product(self.brokers, self.stores, self.acks, self.pools):
            yield Combination(*values)


@dataclass(frozen=True, slots=True)
class Run:
    case: str
    combination: Combination


CASES = (
    Case("1", "a pool child is killed", pools=PREFORK),
    Case("1-end", "a pool child is killed after its work and before its completion", pools=PREFORK),
    Case("2", "a whole worker is killed with prefetched tasks"),
    Case("3", "a task that kills its child each time", pools=PREFORK),
    Case("4", "the broker is flushed while no worker runs"),
    Case("4-running", "the broker is flushed while tasks run", pools=PARALLEL, fails_on_stock=False),
    Case("7", "Redis is away for 9 s", brokers=("redis",)),
    Case("8", "a visibility timeout shorter than the task", brokers=("redis",), acks=("late",)),
    Case("9", "countdowns longer than the visibility timeout, and their worker killed"),
    Case("10", "messages are copied"),
    Case("11", "a stopped worker comes back after its lease"),
    Case("11-parent", "only the main process is stopped, for less than a TTL", pools=PREFORK, fails_on_stock=False),
    Case("12", "RabbitMQ restarts under a running task", brokers=("rabbitmq",), acks=("late",)),
    Case("14", "the broker is away while a transaction enqueues", brokers=("redis", "rabbitmq")),
    Case("14-killed", "a producer is killed between its commit and its publish"),
    Case("15", "a task is enqueued in a transaction that stays open, and in one that is rolled back"),
    Case("17", "SIGTERM, then SIGKILL four seconds later"),
    Case("17-rolling", "five workers are replaced one by one under load", fails_on_stock=False),
    Case("18", "the broker is away while a chain's first task ends", brokers=NETWORKED),
    Case("18-end", "a child is killed between the end of a chain's first task and its completion", pools=PREFORK),
    Case("19", "the child of a chord's slow header task is killed", pools=PREFORK),
    Case("19-worker", "the worker of a chord's header is killed"),
    Case("19-fails", "a header task of a chord fails for good", fails_on_stock=False),
    Case("20", "bodies that enqueue, or write, are killed after it"),
    Case("21", "a task is revoked before any worker runs"),
    Case("21-eta", "a scheduled task is revoked, and its worker killed", fails_on_stock=False),
    Case("21-running", "a running task is revoked"),
    Case("22", "two beats on one schedule, and the broker away for two ticks", brokers=NETWORKED, **ONE),
    Case("22-kill", "beat is killed between its insert and its publish", **ONE),
    Case("23", "workers whose clocks are an hour off", stores=SERVERS),
    Case("24-fork", "the engine is used before the fork", pools=PREFORK, fails_on_stock=False),
    Case(
        "24-away", "the store restarts, then is away for two TTL", stores=SERVERS, pools=PARALLEL, fails_on_stock=False
    ),
    Case("X1", "200 lapsed rows, two sweeps and five boots at once", pools=PREFORK, fails_on_stock=False),
    Case("X3", "8,000 tasks that are due later"),
    Case("X4", "a worker without the task's code", pools=PREFORK),
    Case("X4-deadline", "no worker has the task's code", pools=PREFORK),
    Case("X5", "the hard time limit", pools=PREFORK),
)


def case(name: str) -> Case:
    return next(one for one in CASES if one.name == name)


def whole(cases: Sequence[Case] = CASES) -> list[Run]:
    return [Run(one.name, combination) for one in cases for combination in one.combinations()]


@cache
def cover(cases: tuple[Case, ...] = CASES) -> tuple[Run, ...]:
    """A few of the runs in which each pair of values (case, broker, store, ack mode, pool) that occurs is met."""
    runs = whole(cases)
    pairs_of = {run: frozenset(combinations(_values(run), 2)) for run in runs}
    open_pairs = frozenset().union(*pairs_of.values())
    chosen = []
    while open_pairs:
        best = max(runs, key=lambda run: len(pairs_of[run] & open_pairs))
        open_pairs -= pairs_of[best]
        chosen.append(best)
    return tuple(sorted(chosen, key=runs.index))


def _values(run: Run) -> list[tuple[str, str]]:
    values = (run.case, *astuple(run.combination))
    return list(zip(("case", "broker", "store", "ack", "pool"), values, strict=True))
