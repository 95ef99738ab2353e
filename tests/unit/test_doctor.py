"""What the doctor derives from settings and configuration alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from click.testing import CliRunner

from argus_celery import Argus
from argus_celery.cli import argus as group
from argus_celery.config import Settings
from argus_celery.doctor import CHECKS, Diagnosis, conf, examine, storage
from argus_celery.doctor.findings import Check, Finding, Level
from argus_celery.doctor.recovery import derive
from argus_celery.store import setup

PAGE = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()


def seconds(ttls: tuple[float, ...] = (), **settings: Any) -> dict[str, float]:
    """By the first words of the fault."""
    found = derive(Settings("sqlite:///x.db", **settings), list(ttls))
    return {" ".join(one.fault.split()[:3]): one.seconds for one in found}


def test_recovery_times_follow_the_settings() -> None:
    assert seconds() == {
        "a pool child": 0.5,
        "a worker is": 6.0,
        "a worker hangs,": 32.0,
        "messages are lost:": 62.0,
        "the same, and": 9.0,
        "the same message": 602.0,
        "workers are lost": 13.0,
    }
    quick = seconds(lease_ttl=6, sweep_interval=1, dispatch_ttl=3, dispatch_ttl_max=30)
    assert list(quick.values()) == pytest.approx([0.5, 1.2, 7.2, 4.2, 4.2, 31.2, 4.2])


def test_a_task_with_a_longer_lease_is_waited_for_and_a_shorter_one_renews_them_all() -> None:
    assert seconds((120, 3))["a worker hangs,"] == 122.0
    assert seconds((120, 3))["workers are lost"] == 4.0


def test_a_pool_without_children_has_no_such_fault_and_a_transport_without_a_loop_sees_it_late() -> None:
    settings = Settings("sqlite:///x.db")
    assert "child" not in " ".join(one.fault for one in derive(settings, [], children=False))
    assert next(derive(settings, [], has_loop=False)).seconds == 11.0


MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb1 /home/local xfs rw 0 0
//nas/x /mnt/a\\040b cifs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/argus.db", "ext4"),
        ("/home/me/argus.db", "nfs4"),
        ("/home/local/argus.db", "xfs"),
        ("/homes/argus.db", "ext4"),
        ("/mnt/a b/argus.db", "cifs"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    assert storage.file_system_of(Path(path), MOUNTS) == kind


def test_a_store_on_a_network_disk_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    argus = Argus(Celery("unit", broker="memory://", set_as_current=False), store="sqlite:////home/me/argus.db")
    monkeypatch.setattr(storage, "mounted", lambda: MOUNTS)
    (found,) = storage.disk(argus)
    assert (found.level, "nfs4" in found.what) == (Level.ERROR, True)
    monkeypatch.setattr(storage, "mounted", lambda: "")
    (found,) = storage.disk(argus)
    assert found.level is Level.UNKNOWN, "a check that cannot be made says so"


def late(limit: float | None = None, timeout: float | None = None, broker: str = "redis://") -> list[Finding]:
    app = Celery("unit", broker=broker, set_as_current=False)
    argus = Argus(app, store="sqlite:///unit.db")
    if timeout is not None:
        app.conf.broker_transport_options = {"visibility_timeout": timeout}

    @argus.durable
    @app.task(name="kept", shared=False, acks_late=True, time_limit=limit)
    def kept() -> None:
        """A durable one."""

    @app.task(name="plain", shared=False, acks_late=True, time_limit=limit)
    def plain() -> None:
        """An ordinary one."""

    @app.task(name="early", shared=False)
    def early() -> None:
        """One that acks early."""

    return list(conf.visibility(argus))


@pytest.mark.parametrize(
    ("limit", "timeout", "warns"),
    [(None, None, False), (None, 60, True), (50, 60, False), (70, 60, True), (3700, None, True)],
)
def test_a_visibility_timeout_below_a_late_acks_run_is_warned_of(
    limit: float | None, timeout: float | None, warns: bool
) -> None:
    found = late(limit, timeout)
    if not warns:
        assert [one.level for one in found] == [Level.OK]
        return
    assert [one.level for one in found] == [Level.WARNING, Level.WARNING]
    assert found[0].what.startswith("kept acks late")
    assert "refused" in found[0].what
    assert found[1].what.startswith("plain acks late")
    assert "twice" in found[1].what


def test_a_broker_without_such_a_timeout_is_not_asked() -> None:
    assert late(timeout=1, broker="amqp://") == []


# --- the whole -------------------------------------------------------------------------------------------------------


def test_settings_that_cannot_work_are_the_only_finding() -> None:
    argus = Argus(Celery("unit", broker="memory://", set_as_current=False), store="sqlite:///x.db", lease_ttl=-1)
    found = examine(argus)
    assert [(one.level, one.check) for one in found.findings] == [(Level.ERROR, "settings")]
    assert "argus_lease_ttl" in found.findings[0].what
    assert found.worst_recovery is None


def test_where_there_is_no_store_yet_it_says_what_makes_it_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = Celery("unit", broker="argus://", backend="argus://", set_as_current=False)
    Argus(app)
    told = CliRunner().invoke(group, ["doctor"], obj=SimpleNamespace(app=app))
    assert told.exit_code == 0 and "worst recovery time" in told.output
    assert f"there is no store yet, and what needs it is not checked: {tmp_path}/argus.db is made by" in told.output
    assert "celery -A unit argus init" in told.output
    assert not list(tmp_path.iterdir())


def test_a_store_of_an_older_version_is_not_brought_up_to_date_by_looking(tmp_path: Path) -> None:
    app = Celery("unit", broker="memory://", set_as_current=False)
    argus = Argus(app, store=f"sqlite:///{tmp_path}/x.db")
    (tmp_path / "x.db").touch()
    found = examine(argus)
    assert "the first use of" in found.findings[0].what
    assert setup.version(argus.runtime.store) is None


@pytest.mark.parametrize(
    "command",
    ["status", "projects", "show p", "tasks", "task x", "timeline p", "top --json", "dead", "sweep", "close p"],
)
def test_no_command_that_looks_or_steers_makes_a_store(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = Celery("unit", broker="argus://", backend="argus://", set_as_current=False)
    Argus(app)
    told = CliRunner().invoke(group, command.split(), obj=SimpleNamespace(app=app))
    assert told.exit_code == 1 and told.output.startswith(f"Error: there is no store yet: {tmp_path}/argus.db is made")
    assert not list(tmp_path.iterdir())


def test_a_check_that_breaks_says_so_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(argus: Any) -> list[Finding]:
        raise OSError("no such thing")

    good = Check("good", lambda argus: [Finding(Level.OK, "good", "fine")], needs_store=False)
    monkeypatch.setattr("argus_celery.doctor.CHECKS", (Check("bad", breaks, needs_store=False), good))
    app = Celery("unit", broker="memory://", set_as_current=False)
    found = examine(Argus(app, store=f"sqlite:///{tmp_path}/x.db"))
    assert [(one.level, one.check) for one in found.findings] == [(Level.UNKNOWN, "bad"), (Level.OK, "good")]
    assert "no such thing" in found.findings[0].what
    assert found.worst is Level.OK


@pytest.mark.parametrize(
    ("levels", "code"),
    [([Level.OK, Level.UNKNOWN], 0), ([Level.WARNING, Level.OK], 4), ([Level.WARNING, Level.ERROR], 5)],
)
def test_the_exit_code_is_that_of_the_worst_finding(
    levels: list[Level], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Diagnosis(tuple(Finding(level, "one", "what is", "do this") for level in levels))
    monkeypatch.setattr("argus_celery.doctor.examine", lambda argus: found)
    app = Celery("unit", broker="memory://", set_as_current=False)
    Argus(app, store="sqlite:///x.db")
    told = CliRunner().invoke(group, ["doctor"], obj=SimpleNamespace(app=app))
    assert told.exit_code == code
    assert "fix: do this" in told.output
    as_json = CliRunner().invoke(group, ["doctor", "--json"], obj=SimpleNamespace(app=app))
    assert as_json.exit_code == code
    assert [one["level"] for one in json.loads(as_json.output)["findings"]] == levels


def test_the_page_tells_each_check_and_no_other() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
    assert rows == [check.name for check in CHECKS]


def test_the_page_tells_the_recovery_times_of_the_default_settings() -> None:
    rows = re.findall(r"^\| ([^`|]+) \| ([\d.]+) s \| ", PAGE, re.MULTILINE)
    told = {fault.strip(): float(time) for fault, time in rows}
    assert told == {one.fault: one.seconds for one in derive(Settings("sqlite:///x.db"), [])}
