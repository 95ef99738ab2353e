"""``celery argus …``: what each command shows, does and refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from argus_celery import Limit, durable
from argus_celery.cli import tables
from argus_celery.flow.lapse import lapse
from argus_celery.flow.step import record
from argus_celery.flow.suspend import Wait, suspend
from argus_celery.records import HolderFacts, ProjectStatus, TaskState
from argus_celery.store import holders, reports
from tests.integration.commands import Commands
from tests.integration.embedded import shop

HOSTILE = "[bold]\x1b[31mé\u202e"


@pytest.fixture
def argus(sqlite_store_url: str) -> Iterator[Commands]:
    made = Commands(shop(sqlite_store_url, "memory://"))

    @durable
    @made.shop.app.task(shared=False, name="shop.charge")
    def charge(order: int) -> int:
        return order

    made.project = made.shop.argus.project("import 1")  # type: ignore[attr-defined]
    made.ids = [made.project.enqueue(charge.s(n), key=f"order-{n}").id for n in (1, 2, 3)]  # type: ignore[attr-defined]
    yield made
    made.shop.argus.runtime.store.dispose()


# --- looking ---------------------------------------------------------------------------------------------------------


def test_init_may_be_repeated(argus: Commands) -> None:
    assert "is up to date" in argus("init").stdout


@pytest.mark.postgres
def test_a_server_without_tables_is_a_sentence_that_names_the_command(postgres_store_url: str) -> None:
    bare = Commands(shop(postgres_store_url, "memory://"))
    assert f"celery -A {bare.shop.app.main} argus init" in bare.refused("status")
    assert "has the tables of version" in bare("init").stdout
    assert bare.json("status")["tasks"]["queued"] == 0
    bare.shop.argus.runtime.store.dispose()


def test_status_counts_all_tasks(argus: Commands) -> None:
    assert argus.json("status")["tasks"]["queued"] == 3
    assert "queued" in argus("status").stdout


def test_projects_are_listed_filtered_and_sorted(argus: Commands) -> None:
    argus.shop.argus.project("import 2").pause()
    argus.shop.argus.project("night").close()
    listed = argus.json("projects")
    assert [project["name"] for project in listed] == ["night", "import 2", "import 1"]
    assert (listed[2]["status"], listed[2]["counts"]["queued"], listed[2]["total"]) == ("open", 3, 3)

    def names(*options: str) -> list[str]:
        return [project["name"] for project in argus.json("projects", *options)]

    assert names("import*", "--sort", "name") == ["import 1", "import 2"]
    assert names("--status", "paused") == ["import 2"]
    assert names("--status", "live", "--sort", "alive") == ["import 1", "import 2"]
    assert names("--status", "completed") == ["night"]
    assert "there are more" in argus("projects", "--limit", "2").stdout
    assert argus("projects", "nobody*").stdout == "no project matches\n"
    table = argus("projects").stdout
    assert "open (paused)" in table and "0/3" in table and "3 queued" in table


def test_a_project_is_shown_with_its_first_tasks_and_says_by_its_code_if_some_failed(argus: Commands) -> None:
    shown = argus("show", "import 1").stdout
    assert "3 queued" in shown and "order-1" in shown
    argus.ended(argus.ids[1], TaskState.FAILED, "Traceback\nValueError: broke")  # type: ignore[attr-defined]
    told = argus.json("show", "import 1", "--limit", "1", code=3)
    assert [task["key"] for task in told["tasks"]] == ["order-1"]
    assert "ValueError: broke" in argus("show", "import 1", "--state", "failed", code=3).stdout


def test_tasks_are_listed_and_filtered(argus: Commands) -> None:
    argus.claimed(argus.ids[0])  # type: ignore[attr-defined]
    assert [task["key"] for task in argus.json("tasks", "import 1", "--state", "running")] == ["order-1"]
    assert len(argus.json("tasks", "--name", "shop.*", "--queue", "celery")) == 3
    assert argus.json("tasks", "--key", "order-3", "--newest")[0]["key"] == "order-3"
    assert "import 1" in argus("tasks").stdout.splitlines()[1]
    assert "there are more" in argus("tasks", "--limit", "1").stdout
    assert argus("tasks", "--name", "nobody").stdout == "no task matches\n"


def test_a_task_is_shown_with_its_message_its_attempts_and_why_it_waits(argus: Commands) -> None:
    first, second, third = argus.ids  # type: ignore[attr-defined]
    shown = argus("task", first).stdout
    assert "queued, sent, and not begun" in shown and "(1,)" in shown and "order-1" in shown
    claimed = argus.claimed(first)
    assert "running, by w1" in argus("task", first).stdout
    argus.ended(second, TaskState.FAILED, "ValueError: broke")
    told = argus.json("task", second, code=3)
    assert (told["state"], told["error"], told["attempts"]) == ("failed", "ValueError: broke", 1)
    assert [(one["token"], one["outcome"]) for one in told["history"]] == [(claimed.token, "failed")]
    argus("pause", "import 1")
    assert "running, and not again while its project is paused" in argus("task", first).stdout
    assert "waiting, parked with its project" in argus("task", third).stdout


def test_a_task_tells_until_when_it_has_to_show_progress(argus: Commands) -> None:
    first, second, _ = argus.ids  # type: ignore[attr-defined]
    argus.claimed(first, progress_timeout=90)
    argus.claimed(second)
    assert "has to show progress within " in argus("task", first).stdout
    assert "progress" not in argus("task", second).stdout


def test_a_task_tells_the_last_of_its_steps(argus: Commands) -> None:
    task_id, claim = argus.ids[0], argus.claimed(argus.ids[0])  # type: ignore[attr-defined]
    assert "steps" not in argus("task", task_id).stdout
    names = [f"fetch {HOSTILE}", 'each["a"]', *(f"step {n:03}" for n in range(99))]
    for name in names:
        record(argus.shop.argus.runtime, claim, name, None if "each" in name else b"x" * 1234)
    shown = argus("task", task_id).stdout
    assert "101 finished" in shown and "the last 100 of 101 steps:" in shown
    assert "1,234 bytes" in shown and "\x1b" not in shown
    told = argus.json("task", task_id)
    assert (told["step_count"], len(told["steps"])) == (101, 100)
    assert (told["steps"][-1]["name"], told["steps"][-1]["size"]) == ("step 098", 1234)
    assert told["steps"][-1]["token"] == claim.token


def test_a_task_tells_what_it_waits_for(argus: Commands) -> None:
    first, second, _ = argus.ids  # type: ignore[attr-defined]
    charge = argus.shop.app.tasks["shop.charge"]
    child = argus.project.enqueue(charge.s(4), after=[second, first]).id  # type: ignore[attr-defined]
    argus.ended(first, TaskState.SUCCEEDED)
    shown = argus("task", child).stdout
    assert f"waiting, waits for 1 of 2: {second[:8]}\n" in shown
    listed = argus("tasks", "import 1").stdout.splitlines()
    assert listed[-1].startswith(child) and listed[-1].endswith(f"waits for {second[:8]}")
    assert f"waits for {second[:8]}" in argus("show", "import 1").stdout
    assert f"{second}  shop.charge  queued\n" in shown and f"{first}  shop.charge  succeeded\n" in shown
    told = argus.json("task", child)
    assert (told["after"], told["waits_for"]) == ([second, first], [second])


def test_a_task_tells_that_it_waits_for_a_limit(argus: Commands) -> None:
    charge = argus.shop.app.tasks["shop.charge"]
    limits = {"narrow": (Limit(concurrency=1), "1 at once"), "slow": (Limit(rate="1/h"), "a start every 3600 s")}
    for name, (limit, allows) in limits.items():
        project = argus.shop.argus.project(name, limit=limit)
        _, second = (project.enqueue(charge.s(n)).id for n in (1, 2))
        why = f"waits for the limit of project {name} ({allows})\n"
        assert f"waiting, {why}" in argus("task", second).stdout
        assert why in argus("tasks", name).stdout and why in argus("show", name).stdout
        first, other = argus.json("tasks", name)
        assert (first["limit"], other["limit"]["name"]) == (None, f"project {name}")


def test_tasks_tell_since_when_they_are_where_they_are_and_who_runs_them(argus: Commands) -> None:
    store = argus.shop.argus.runtime.store
    for name in ("w1", "w2"):
        facts = HolderFacts(name, f"celery@{name}", "here", 1, "boot", "space", "start")
        store.transaction(lambda connection, facts=facts: holders.register(store, connection, facts))
    first, second, _ = argus.ids  # type: ignore[attr-defined]
    argus.claimed(first)
    argus.ended(second, TaskState.SUCCEEDED)
    argus.project.pause()  # type: ignore[attr-defined]
    argus.shop.app.tasks["shop.charge"].apply_async((4,), countdown=86_400, argus_project="later")
    store.clock_shift += 3 * 3600_000
    running, ended, parked = argus("tasks", "import 1").stdout.splitlines()[1:]
    assert re.search(r"running +3 h .* celery@w1$", running)
    assert re.search(r"succeeded +3 h ", ended) and "celery@" not in ended
    assert re.search(r"waiting +3 h .* parked with its project$", parked)
    assert argus("tasks", "later").stdout.rstrip().endswith("due in 21 h")
    wide = argus("tasks", "import 1", "--wide").stdout.splitlines()
    assert re.search(r"worker +enqueued +ran for +args", wide[0])
    assert re.search(r"celery@w1 .* 3 h +\(1,\)$", wide[1]) and re.search(r"celery@w1 .* ms +\(2,\)$", wide[2])
    told = argus.json("tasks", "import 1")
    assert [(task["node"], task["parked"]) for task in told] == [("celery@w1", False), (None, False), (None, True)]


def test_a_batch_is_listed_in_the_order_of_its_calls(argus: Commands) -> None:
    charge = argus.shop.app.tasks["shop.charge"]
    results = argus.shop.argus.project("batch").enqueue_many(charge.s(n) for n in range(40))
    assert [task["id"] for task in argus.json("tasks", "batch")] == [result.id for result in results]


def test_a_killed_run_is_told_with_its_last_sign_of_life(argus: Commands) -> None:
    rt, (first, second, _) = argus.shop.argus.runtime, argus.ids  # type: ignore[attr-defined]
    claim = argus.claimed(first)
    lapse(rt, claim.holder, first, claim.token, "the process 7 was lost")
    assert re.search(r"\d  killed        w1  .*the process 7 was lost", argus("task", first).stdout)
    claim = argus.claimed(second)
    rt.store.clock_shift += 2_000
    record(rt, claim, "half", None)
    rt.store.clock_shift += 60_000
    argus("sweep")
    shown = argus("task", second).stdout
    assert re.search(r"ran for +then silent", shown) and re.search(
        r"lost +w1 .* 2\.\d s +60 s +the lease lapsed", shown
    )
    (attempt,) = argus.json("task", second)["history"]
    assert 2_000 <= attempt["known_until"] - attempt["started_at"] < 10_000


def test_a_task_tells_what_it_waits_for_in_the_middle_of_its_work(argus: Commands) -> None:
    first, second, _ = argus.ids  # type: ignore[attr-defined]
    rt = argus.shop.argus.runtime
    suspend(rt, argus.claimed(first), Wait("wait approved", "approved"))
    suspend(rt, argus.claimed(second), Wait("sleep", delay_ms=3600 * 1000))
    assert "waiting, waits for 'approved' since" in argus("task", first).stdout
    assert "waiting, sleeps until" in argus("task", second).stdout
    assert "suspended" in argus("task", second).stdout
    listed = argus("tasks", "import 1").stdout
    assert "waits for 'approved' since" in listed and "sleeps until" in listed
    assert "2 of the waiting" in argus("show", "import 1").stdout
    told = argus.json("task", first)["suspended"]
    assert (told["event"], told["until"]) == ("approved", None)
    assert "2 suspended" in argus("timeline", "import 1").stdout


# --- steering --------------------------------------------------------------------------------------------------------


def test_a_project_is_paused_resumed_closed_and_cancelled(argus: Commands) -> None:
    assert argus("pause", "import 1").stdout == "import 1 is open (paused): 3 waiting\n"
    assert argus("resume", "import 1").stdout == "import 1 is open: 3 waiting\n"
    assert argus("close", "import 1").stdout == "import 1 is closed: 3 waiting\n"
    assert argus("cancel", "import 1", "--yes").stdout == "import 1 is cancelled: 3 cancelled\n"
    assert argus("cancel", "import 1", "--yes").stdout == "import 1 is cancelled: 3 cancelled\n"
    assert "is cancelled" in argus.refused("pause", "import 1")
    assert "is cancelled" in argus.refused("resume", "import 1")


def test_a_project_is_told_an_event_once(argus: Commands) -> None:
    assert argus("send", "import 1", "approved", '{"by": "Ann"}').stdout == "import 1 was told 'approved'\n"
    assert "had been told 'approved' before" in argus.refused("send", "import 1", "approved")
    assert argus("send", "import 1", "another").exit_code == 0
    assert "a text stands in quotes" in argus.refused("send", "import 1", "wrong", "yes", code=2)
    assert "must not end with a blank" in argus.refused("send", "import 1", "wrong ", code=2)
    assert "Did you mean 'import 1'" in argus.refused("send", "import", "approved")


def test_an_event_that_nobody_waits_for_is_kept_and_what_is_waited_for_is_named(argus: Commands) -> None:
    alone = argus("send", "import 1", "early")
    assert (alone.exit_code, alone.stderr) == (0, "nobody waits for 'early' now\n")
    claim = argus.claimed(argus.ids[0])  # type: ignore[attr-defined]
    suspend(argus.shop.argus.runtime, claim, Wait("wait approved", "approved"))
    misspelt = argus("send", "import 1", "aproved")
    assert (misspelt.exit_code, misspelt.stdout) == (0, "import 1 was told 'aproved'\n")
    assert misspelt.stderr == "nobody waits for 'aproved' now; waited for: 'approved'\n"
    assert "had been told 'aproved' before" in argus.refused("send", "import 1", "aproved")
    assert argus("send", "import 1", "approved").stderr == ""


def test_numbers_that_mean_nothing_are_refused_by_the_name_of_their_option(argus: Commands) -> None:
    assert "'--limit'" in argus.refused("tasks", "--limit", "0", code=2)
    assert "'--every'" in argus.refused("top", "--every", "nan", code=2)


def test_a_project_is_reopened_and_one_that_is_cancelled_tells_why(argus: Commands) -> None:
    argus("close", "import 1")
    assert argus("reopen", "import 1").stdout == "import 1 is open: 3 queued\n"
    argus("cancel", "import 1", "--yes", "--reason", "wrong file")
    assert "why" in argus("show", "import 1").stdout and "wrong file" in argus("show", "import 1").stdout


def test_a_pause_may_stop_what_runs(argus: Commands) -> None:
    argus.claimed(argus.ids[0])  # type: ignore[attr-defined]
    assert argus("pause", "import 1").stdout == "import 1 is open (paused): 2 waiting, 1 running\n"
    assert argus("pause", "import 1", "--stop").stdout == "import 1 is open (paused): 3 waiting\n"


def test_a_project_is_shown_with_its_options(argus: Commands) -> None:
    argus.project.configure(on_failure="pause", deadline=3600, priority=3, weight=2, meta={"file": "a"})  # type: ignore[attr-defined]
    shown = argus("show", "import 1").stdout
    assert all(label in shown for label in ("deadline", "on failure  pause", "priority", "weight", '{"file": "a"}'))
    assert "limit" not in shown
    argus.project.configure(limit=Limit(concurrency=3, rate="100/m", burst=5))  # type: ignore[attr-defined]
    limit = "limit       3 at once, a start every 0.6 s, 5 of them together after a rest\n"
    assert limit in argus("show", "import 1").stdout
    assert argus.json("show", "import 1")["limit"]["concurrency"] == 3
    assert argus.project.progress().limit.burst == 5  # type: ignore[attr-defined]
    argus.project.configure(limit=None)  # type: ignore[attr-defined]
    assert argus.json("show", "import 1")["limit"] is argus.project.progress().limit is None  # type: ignore[attr-defined]


def test_a_task_is_restarted_after_a_question(argus: Commands) -> None:
    first = argus.ids[0]  # type: ignore[attr-defined]
    argus.ended(first, TaskState.SUCCEEDED)
    assert "give --yes" in argus.refused("restart", "import 1", first)
    assert argus.shop.task(first).state is TaskState.SUCCEEDED
    assert argus("restart", "import 1", first, "--yes").stdout == "runs again: 1\n"
    assert argus.shop.task(first).state is TaskState.QUEUED
    argus.ended(first, TaskState.SUCCEEDED)
    assert argus("restart", "import 1", first[:-1], "--yes").stdout == "runs again: 1\n"


def test_cancel_asks_and_without_a_terminal_refuses(argus: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = argus.refused("cancel", "import 1")
    assert "end 3 queued?" in refused and "give --yes" in refused
    assert argus.project.status is ProjectStatus.OPEN  # type: ignore[attr-defined]
    monkeypatch.setattr("argus_celery.cli.asking.is_terminal", lambda: True)
    assert "nothing was done" in argus("cancel", "import 1", answer="n\n", code=1).stderr
    assert argus.project.status is ProjectStatus.OPEN  # type: ignore[attr-defined]
    assert "is cancelled" in argus("cancel", "import 1", answer="y\n").stdout


def test_what_has_ended_is_not_cancelled(argus: Commands) -> None:
    argus.shop.argus.project("night").close()
    assert "there is nothing left to cancel" in argus.refused("cancel", "night", "--yes")


def test_the_default_project_is_not_closed(argus: Commands) -> None:
    argus.shop.argus.project("default")
    assert "never ends" in argus.refused("close", "default")


def test_what_failed_is_put_back(argus: Commands) -> None:
    for task_id in argus.ids:  # type: ignore[attr-defined]
        argus.ended(task_id, TaskState.FAILED)
    one = argus.ids[0]  # type: ignore[attr-defined]
    assert argus("retry", "import 1", "--task", one).stdout == "put back 1\n"
    assert argus("retry", "import 1", "--task", one).stdout == "put back 0\n"
    assert argus.refused("retry", "import 1", "--state", "dead")
    assert argus.refused("retry", "import 1", "--name", "nobody*")
    assert argus.json("retry", "import 1", "--task", one) == {"put_back": []}
    assert "no task of the name 'shop.[c]harge'" in argus.refused("retry", "import 1", "--name", "shop.[c]harge")
    assert argus("retry", "import 1", "--state", "failed", "--name", "shop.*").stdout == "put back 2\n"
    argus.ended(one, TaskState.FAILED)
    assert argus.json("retry", "import 1", "--task", one[:-1]) == {"put_back": [one]}
    argus.shop.argus.project("night")
    assert "there is no task" in argus.refused("retry", "night", "--task", one)


def test_of_an_id_a_beginning_will_do_that_no_other_task_has(argus: Commands) -> None:
    charge = argus.shop.app.tasks["shop.charge"]
    for task_id in ("order-1", "order-10", "order-20"):
        charge.apply_async((1,), task_id=task_id, argus_project="import 1")
    assert argus.json("task", "order-2")["id"] == "order-20"
    assert argus.json("task", "order-1")["id"] == "order-1", "who names one whole means that one"
    refused = argus.refused("task", "order-")
    assert "'order-' is the beginning of several ids" in refused
    assert all(f"\n  {one}  shop.charge  queued" in refused for one in ("order-1", "order-10", "order-20"))
    for command in (("retry", "import 1", "--task"), ("restart", "import 1", "--yes")):
        assert "the beginning of several ids" in argus.refused(*command, "order-")
    for nothing in ("", "*", "order-?0", "%", "\udcff"):
        assert "there is no task" in argus.refused("task", nothing)


def test_what_is_put_back_in_a_paused_project_says_that_nothing_starts(argus: Commands) -> None:
    first, second, _ = argus.ids  # type: ignore[attr-defined]
    argus.ended(first, TaskState.FAILED)
    argus.ended(second, TaskState.SUCCEEDED)
    argus.project.pause()  # type: ignore[attr-defined]
    for command in (("retry", "import 1"), ("restart", "import 1", second, "--yes")):
        assert argus(*command).stderr == "import 1 is paused, and starts nothing until  argus resume 'import 1'\n"


def died(argus: Commands, task_id: str) -> None:
    """It has lost its worker as often as it may."""
    store = argus.shop.argus.runtime.store
    while not argus.shop.task(task_id).state.ended:
        argus.claimed(task_id)
        store.clock_shift += 60_000
        argus("sweep")


def test_dead_letters_are_listed_over_projects_and_put_back_by_a_filter(argus: Commands) -> None:
    assert argus("dead").stdout == "no dead letters\n"
    first, second, _ = argus.ids  # type: ignore[attr-defined]
    died(argus, first)
    died(argus, second)
    assert [task["key"] for task in argus.json("dead", code=3)] == ["order-2", "order-1"]
    assert [task["key"] for task in argus.json("dead", "--key", "*-1", code=3)] == ["order-1"]
    assert "lost its worker" in argus("dead", "--name", "shop.*", code=3).stdout
    assert "there are more" in argus("dead", "--limit", "1", code=3).stdout
    assert argus("dead", "--key", "order-1", "--requeue").stdout == "import 1: put back 1\n"
    assert (argus.shop.task(first).state, argus.shop.task(second).state) == (TaskState.QUEUED, TaskState.DEAD)
    assert argus.json("dead", "--requeue", "--limit", "0") == {"import 1": [second]}


def test_a_filter_of_dead_letters_that_matches_nothing_is_told(argus: Commands) -> None:
    died(argus, argus.ids[0])  # type: ignore[attr-defined]
    refused = argus.refused("dead", "--requeue", "--name", "shop.chrage")
    assert refused == "Error: no dead letter matches: nothing was put back. Did you mean 'shop.charge'?\n"
    assert "Did you mean 'import 1'?" in argus.refused("dead", "--project", "imprt 1")


def test_sweep_says_what_it_did_and_twice_does_nothing(argus: Commands) -> None:
    assert argus("sweep").stdout == "dispatched 0, of which lapsed 0; dead 0\n"
    assert argus.json("sweep") == {"dispatched": 0, "lapsed": 0, "dead": 0, "mended": 0}


# --- bad input -------------------------------------------------------------------------------------------------------


def test_an_unknown_project_names_the_near_one_and_makes_none(argus: Commands) -> None:
    for command in ("show", "tasks", "pause", "resume", "close", "cancel", "retry"):
        refused = argus.refused(command, "imprt 1")
        assert refused == "Error: there is no project 'imprt 1'. Did you mean 'import 1'?\n"
    assert reports.project_info(argus.shop.argus.runtime.store, "imprt 1") is None


def test_an_unknown_task_names_the_near_one(argus: Commands) -> None:
    one = argus.ids[0]  # type: ignore[attr-defined]
    assert f"there is no task 'x{one}'. Did you mean '{one}'?" in argus.refused("task", f"x{one}")
    assert argus.json("task", one[:8])["id"] == one  # as the timeline shows it


def test_a_wrong_command_line_is_code_2(argus: Commands) -> None:
    for wrong in ("projekts", "show", "tasks --state runing", "tasks --limit -1", "projects --colour"):
        assert "Usage:" in argus.refused(*wrong.split(), code=2)


def test_what_no_store_can_hold_is_refused(argus: Commands) -> None:
    for option in ("--name", "--queue", "--key"):
        for given in ("x" * 256, "\udcff", ""):
            assert f"Invalid value for '{option}'" in argus.refused("tasks", option, given, code=2)


def test_an_unknown_command_names_the_near_one(argus: Commands) -> None:
    assert "Did you mean 'projects'?" in argus.refused("projekts", code=2)


@pytest.mark.parametrize("command", ["init", "status", "projects", "tasks", "sweep"])
def test_a_store_that_is_away_is_one_sentence(command: str) -> None:
    away = Commands(shop("postgresql+psycopg://nobody@127.0.0.1:1/none", "memory://"))
    refused = away.refused(command)
    assert refused.startswith("Error: the store postgresql+psycopg://nobody@127.0.0.1:1/none cannot be reached")


# --- on a terminal ---------------------------------------------------------------------------------------------------


def test_what_others_named_cannot_harm_the_terminal(argus: Commands) -> None:
    argus.shop.argus.project(HOSTILE)
    for shown in (argus("projects").stdout, argus("show", HOSTILE).stdout, argus("pause", HOSTILE).stdout):
        assert "[bold]\\x1b[31mé\\u202e" in shown
        assert not {"\x1b", "\u202e"} & set(shown)
    assert "\x1b" not in argus.refused("show", HOSTILE + "?")


@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_table_fits_the_terminal(
    argus: Commands, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    monkeypatch.setattr(tables, "width_of_terminal", lambda: width)
    argus.ended(argus.ids[0], TaskState.FAILED, "ValueError: " + "it broke " * 30)  # type: ignore[attr-defined]
    shown = argus("tasks").stdout
    assert max(map(len, shown.splitlines())) <= width
    assert all(task_id[:8] in shown for task_id in argus.ids)  # type: ignore[attr-defined]
    assert "ValueError" in shown


def test_ids_are_shortened_as_far_as_they_stay_apart_and_chosen_ones_not_at_all() -> None:
    one, two, far = (
        f"{start}-4a4a-4a4a-8a8a-{end}"
        for start, end in (("a" * 8, "0" * 12), ("a" * 8, "1" * 12), ("b" * 8, "0" * 12))
    )
    assert tables.abbreviated([one, far, "order-10000000000000"]) == ["a" * 8, "b" * 8, "order-10000000000000"]
    assert tables.abbreviated([one, two]) == [one, two]


def test_names_lose_their_middle_and_wide_letters_count_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "width_of_terminal", lambda: 20)
    tables.table(["name", "attempts"], [["import 2026-11-29", 7], ["支払いのタスクです", None]])
    assert capsys.readouterr().out.splitlines() == ["name        attempts", "impo…11-29         7", "支払…です"]
