"""Options of the fault bench, the runs of each case, and the bench that a case gets.

pytest tests/faults -n 4                 the pairwise cover
pytest tests/faults -n 4 --all           the whole matrix
pytest tests/faults --stock              plain Celery: the cases have to fail
pytest tests/faults --faults-report F    write the results as a table
pytest tests/faults --faults-journal F   note each run in F as it ends, and leave out those that are noted there as ok
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults import after, journal, matrix, report
from tests.faults.bench import Bench
from tests.faults.brokers import open_broker
from tests.faults.matrix import Combination, Run
from tests.faults.setup import TIMINGS, Setup
from tests.faults.stores import open_store
from tests.services import RabbitServer
from tests.services.session import SERVICES, need_tool, required

STARTED: list[Any] = []
RESULTS: list[report.Row] = []
CONTROL = "ARGUS_TEST_RABBITMQ_CONTROL"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults")
    group.addoption("--all", action="store_true", dest="faults_all", help="the whole fault matrix")
    group.addoption("--stock", action="store_true", dest="faults_stock", help="run on Celery without Argus")
    group.addoption("--faults-report", metavar="PATH", help="write the results of the fault bench to this file")
    group.addoption("--faults-journal", metavar="PATH", help="note each run here; what is noted as ok is not run again")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "case(name, **needs): a failure case of the fault bench")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Noting(config.getoption("--faults-journal", None)))


# The runs of each case


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("case")
    if marker is None:
        return
    one = matrix.case(marker.args[0])
    runs = _runs(metafunc.config, one)
    metafunc.parametrize("at", [run.combination for run in runs], ids=str)


def _runs(config: pytest.Config, one: matrix.Case) -> list[Run]:
    runs = matrix.whole() if config.getoption("faults_all", False) else matrix.cover()
    done = _journal(config)
    mine = [run for run in runs if run.case == one.name and not _is_ok(done.get((run.case, str(run.combination))))]
    if config.getoption("faults_stock", False):
        mine = [run for run in matrix.whole([one]) if run.combination.broker != "argus"][:1]
    return mine


def _journal(config: pytest.Config) -> dict[tuple[str, str], report.Row]:
    """As it was when the session began, for the controller and its xdist workers alike."""
    path = config.getoption("--faults-journal", None)
    if path and not hasattr(config, "faults_journal"):
        config.faults_journal = journal.read(Path(path))  # type: ignore[attr-defined]
    return getattr(config, "faults_journal", {})


def _is_ok(row: report.Row | None) -> bool:
    return row is not None and row.result == "ok"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("faults_stock", False):
        return
    for item in items:
        marker = item.get_closest_marker("case")
        if marker is not None and matrix.case(marker.args[0]).fails_on_stock:
            item.add_marker(pytest.mark.xfail(reason="fails on stock Celery", raises=AssertionError, strict=True))


# The servers of a session, shared by its xdist workers


def pytest_sessionstart(session: pytest.Session) -> None:
    """One server of each kind for all xdist workers: the controller starts what the environment does not name."""
    if not hasattr(session.config, "workerinput") and session.config.getoption("numprocesses", None):
        for name in ("postgres", "mariadb", "rabbitmq"):
            _shared(name)


def pytest_sessionfinish(session: pytest.Session) -> None:
    for server in STARTED:
        server.close()
    path = session.config.getoption("--faults-report", None)
    if path and not hasattr(session.config, "workerinput"):
        title = "the whole matrix" if session.config.getoption("faults_all", False) else "a pairwise cover"
        kept = session.config.getoption("--faults-journal", None)
        report.write(Path(path), [*journal.read(Path(kept)).values()] if kept else RESULTS, title)


def _shared(name: str) -> str | None:
    """URL of the server of this session; None where the machine has none."""
    variable = f"ARGUS_TEST_{name.upper()}_URL"
    if variable not in os.environ:
        try:
            server = SERVICES[name]()
        except Exception:
            return None
        STARTED.append(server)
        os.environ[variable] = server.start().url
        if isinstance(server, RabbitServer):
            os.environ[CONTROL] = shlex.join(server.control_command)
    return os.environ[variable]


def _needs(name: str) -> str:
    url = _shared(name)
    if url is None:
        (pytest.fail if name in required() else pytest.skip)(f"no {name} on this machine")
    return str(url)


# The bench


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path, at: Combination) -> Iterator[Bench]:
    """Broker, store, ledger and producer of one run; what it started is gone afterwards."""
    needs = dict(request.node.get_closest_marker("case").kwargs)
    if needs.pop("faketime", False):
        need_tool("faketime")
    own_store = needs.pop("own_store", False)
    if at.store != "sqlite" and not own_store:
        _needs(at.store)
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(open_store(at.store, tmp_path, own=own_store))
        own, aof = needs.pop("own_broker", False), needs.pop("aof", False)
        rabbit = _rabbit() if at.broker == "rabbitmq" and not own else None
        broker = stack.enter_context(open_broker(at.broker, place.url, own=own, aof=aof, rabbit=rabbit))
        made = Bench(_setup(request, tmp_path, at, broker.url, place.url, needs), tmp_path, at, broker, place)
        stack.callback(made.clean_up)
        yield made


def _setup(
    request: pytest.FixtureRequest, folder: Path, at: Combination, broker: str, store: str, needs: dict[str, Any]
) -> Setup:
    settings = {**TIMINGS, **needs.pop("settings", {})}
    options = needs.pop("broker_options", {}) if at.broker == "redis" else needs.pop("broker_options", {}) and {}
    results = folder / "results"
    results.mkdir()
    return Setup(
        broker=broker,
        store=store,
        ack=at.ack,
        pool=at.pool,
        ledger=str(folder / "ledger"),
        stock=request.config.getoption("faults_stock", False),
        results=str(results),
        broker_options=options,
        settings=settings,
        **needs,
    )


def _rabbit() -> tuple[str, list[str]]:
    url = _needs("rabbitmq")
    return url, shlex.split(os.environ.get(CONTROL, "rabbitmqctl -q"))


# After each case


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    """The after-check is part of every case."""
    outcome = yield
    bench = pyfuncitem.funcargs.get("bench")
    if isinstance(bench, Bench):
        after.check(bench)
    return outcome


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    made: pytest.TestReport = yield
    bench = getattr(item, "funcargs", {}).get("bench")
    if made.when == "call" and isinstance(bench, Bench):
        made.user_properties.append(("faults", (_name(item), str(bench.at), bench.recovery)))
        if made.failed:
            made.sections += [(f"log of {node.name}", node.tail()) for node in bench.nodes]
            made.sections.append(("ledger", "\n".join(map(str, bench.ledger.lines()))))
    return made


def _name(item: pytest.Item) -> str:
    marker = item.get_closest_marker("case")
    return str(marker.args[0]) if marker else item.name


class Noting:
    """On the controller of a session: takes down what has ended."""

    def __init__(self, kept: str | None) -> None:
        self.path, self.commit = kept and Path(kept), journal.commit()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == "faults" and report.when == "call":
                RESULTS.append(row := _row(value, report, self.commit))
                if self.path:
                    journal.note(self.path, row)


def _row(value: Any, made: pytest.TestReport, commit: str) -> report.Row:
    return report.Row(value[0], value[1], "ok" if made.passed else "FAILED", value[2], commit)
