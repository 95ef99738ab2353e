"""docker-compose.yml against the Compose Specification's schema, and against what it names in this repository."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(json.loads((ROOT / "tests" / "data" / "compose-spec.json").read_text()))


def test_it_follows_the_compose_specification(compose: dict[str, Any], validator: jsonschema.Draft7Validator) -> None:
    assert [f"{error.json_path}: {error.message}" for error in validator.iter_errors(compose)] == []


def test_the_schema_refuses_a_misspelt_option(compose: dict[str, Any], validator: jsonschema.Draft7Validator) -> None:
    broken = {**compose, "services": {"redis": {"image": "redis", "comand": "redis-server"}}}
    assert not validator.is_valid(broken)


def test_it_has_the_servers_two_workers_beat_and_the_demo(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {"postgres", "redis", "init", "worker-1", "worker-2", "beat", "demo"}


def test_services_wait_only_for_services_that_exist(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        for name, wait in service.get("depends_on", {}).items():
            assert wait["condition"] != "service_healthy" or "healthcheck" in services[name]


def test_commands_name_modules_of_this_repository(compose: dict[str, Any]) -> None:
    commands = [service["command"] for service in compose["services"].values() if "command" in service]
    modules = {match for command in commands for match in re.findall(r"(?:-A|-m) (\S+)", command)}
    assert modules
    for module in modules:
        assert importlib.util.find_spec(module), module


def test_the_demo_reads_the_variables_that_are_set(compose: dict[str, Any]) -> None:
    source = "".join(path.read_text() for path in (ROOT / "examples" / "stdlib").glob("*.py"))
    for variable in compose["x-app"]["environment"]:
        assert variable in source


def test_the_image_copies_what_is_there() -> None:
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line.startswith("!"):
            assert (ROOT / line[1:]).exists(), line
