"""docs/cli.md tells the commands, options and exit codes there are; help texts are in one style."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from argus_celery import cli
from argus_celery.cli.exits import Exit
from argus_celery.cli.top.keys import Keys
from argus_celery.cli.top.live import Top

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
COMMANDS: dict[str, click.Command] = {
    name: cli.argus.get_command(click.Context(cli.argus), name)  # type: ignore[misc]
    for name in cli._COMMANDS
}


def test_the_page_lists_every_command_and_no_other() -> None:
    listed = re.findall(r"^\| `([a-z]+)[ `]", PAGE.split("\n## ")[0], re.MULTILINE)
    assert listed == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_on_the_page_and_no_other(name: str) -> None:
    told = {
        option
        for row in re.findall(rf"^\| `{name}[ `].*$", PAGE, re.MULTILINE)
        for option in re.findall(r"`(--[\w-]+)", row)
    }
    assert told == {option for one in COMMANDS[name].params for option in one.opts if option.startswith("--")}


def test_the_page_tells_each_key_of_top() -> None:
    rows = re.findall(r"^\| ((?:`[^`]+`,? ?)+) \|", PAGE.split("## top")[1].split("\n## ")[0], re.MULTILINE)
    told = [key for row in rows for key in re.findall(r"`([^`]+)`", row)]
    arrows = {"↑": "up", "↓": "down"}
    assert sorted(arrows.get(key, key) for key in told) == sorted(Top(None, 2.0, keys=Keys(0)).does())


def test_the_page_tells_each_exit_code() -> None:
    assert [int(code) for code in re.findall(r"^\| (\d) \|", PAGE, re.MULTILINE)] == sorted(Exit)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_in_one_style(name: str) -> None:
    command = COMMANDS[name]
    assert command.name == name
    assert command.help and re.fullmatch(r"[A-Z].*\.", command.help.strip(), re.DOTALL)
    line = cli._COMMANDS[name]
    assert line[0].islower() and not line.endswith(".") and len(line) <= 66
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help and re.fullmatch(r"[A-Z].*\.", parameter.help), (name, parameter.name)


@pytest.mark.parametrize(
    "name",
    sorted(
        COMMANDS.keys()
        - {"init", "pause", "resume", "close", "reopen", "send", "cancel", "retry", "restart", "sweep", "prune"}
    ),
)
def test_what_shows_data_has_json(name: str) -> None:
    assert any("--json" in parameter.opts for parameter in COMMANDS[name].params)
