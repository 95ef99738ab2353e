"""Settings: read from ``app.conf.argus_*`` and from keywords, and refused with a sentence when they cannot work."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.app.amqp import AMQP

from argus_celery import Argus, errors

STORE = "sqlite:///unit.db"


def _app(**conf: Any) -> Celery:
    app = Celery("unit", set_as_current=False)
    app.conf.update(conf)
    return app


def test_settings_come_from_the_configuration_of_the_app() -> None:
    argus = Argus(_app(argus_store_url=STORE, argus_lease_ttl=12))
    assert argus.settings.store_url == STORE
    assert argus.settings.lease_ttl == 12


def test_a_keyword_wins_over_the_configuration() -> None:
    assert Argus(_app(argus_store_url="sqlite:///other.db"), store=STORE).settings.store_url == STORE


def test_settings_may_be_made_after_argus() -> None:
    app = _app()
    argus = Argus(app)
    app.conf.argus_store_url = STORE
    assert argus.settings.store_url == STORE


def test_settings_may_stand_under_the_namespace_of_the_app() -> None:
    app = Celery("unit", namespace="CELERY", set_as_current=False)
    app.config_from_object(SimpleNamespace(CELERY_ARGUS_STORE_URL=STORE, CELERY_ARGUS_MAX_LOSSES=3), namespace="CELERY")
    argus = Argus(app)
    assert (argus.settings.store_url, argus.settings.max_losses) == (STORE, 3)


def test_making_argus_reads_no_configuration() -> None:
    app = Celery("unit", set_as_current=False)
    app.config_from_object("a_module.that_does_not_exist")
    Argus(app, store=STORE)
    assert not app.configured


@pytest.mark.parametrize("never", [0, None])
def test_a_deadline_that_is_never_is_told_from_one_that_was_not_set(never: int | None) -> None:
    assert Argus(_app(argus_unknown_deadline=never), store=STORE).runtime.unknown_deadline_ms is None
    assert Argus(_app(), store=STORE).runtime.unknown_deadline_ms == 24 * 3600 * 1000


@pytest.mark.parametrize(
    ("conf", "told"),
    [
        ({"argus_lease_tll": 3}, "Did you mean argus_lease_ttl"),
        ({"argus_lease_ttl": 0}, "argus_lease_ttl must be at least"),
        ({"argus_unknown_deadlin": 3}, "Did you mean argus_unknown_deadline"),
        ({"argus_unknown_deadline": -1}, r"argus_unknown_deadline must be at least 0 s, not -1; 0 or None is never"),
        ({"argus_unknown_deadline": "day"}, "argus_unknown_deadline must be a finite number of seconds"),
        ({"argus_unknown_deadline": float("inf")}, "argus_unknown_deadline must be a finite number of seconds"),
        ({"argus_unknown_deadline": 10**400}, "argus_unknown_deadline must be at most 3162240000 seconds"),
        ({"argus_lease_ttl": "30"}, "argus_lease_ttl must be a finite number"),
        ({"argus_lease_ttl": True}, "argus_lease_ttl must be a finite number"),
        ({"argus_retention": float("nan")}, "argus_retention must be a finite number"),
        ({"argus_retention": 10**5000}, "argus_retention must be at most .* not a number of 16610 bits"),
        ({"argus_max_losses": 0}, "argus_max_losses must be at least 1"),
        ({"argus_max_losses": 1.0}, "argus_max_losses must be a whole number"),
        ({"argus_dispatch_window": 10**400}, "argus_dispatch_window must be at most 2147483647"),
        ({"argus_durable_tasks": "shop.*"}, "argus_durable_tasks must be a list"),
        ({"argus_durable_tasks": ["celery.*"]}, "never durable"),
        ({"argus_durable_tasks": ["shop.*", "argus.sweep"]}, "'argus.sweep' names only tasks of Celery or of Argus"),
        ({"argus_catch_up": "two"}, "argus_catch_up must be one of"),
        ({"argus_key_conflict": "eror"}, "argus_key_conflict must be one of"),
        ({"argus_dispatch_ttl": 700}, "argus_dispatch_ttl_max"),
    ],
)
def test_a_bad_setting_is_refused_by_name(conf: dict[str, Any], told: str) -> None:
    with pytest.raises(errors.SettingError, match=told):
        Argus(_app(argus_store_url=STORE, **conf)).settings


def test_an_unknown_keyword_is_refused() -> None:
    with pytest.raises(errors.SettingError, match="argus_lease_ttl"):
        Argus(_app(), store=STORE, lease_tl=3).settings


@pytest.mark.parametrize(
    ("options", "told"),
    [({"lease": 3}, "no option lease. Did you mean lease_ttl"), ({"x": 1}, "Known: lease_ttl, max")],
)
def test_an_unknown_option_of_the_decorator_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(errors.SettingError, match=told):
        Argus.durable(**options)


def test_a_missing_store_is_told_with_an_example() -> None:
    with pytest.raises(errors.SettingError, match=r"sqlite:///argus\.db"):
        Argus(_app(broker_url="redis://localhost")).settings


@pytest.mark.parametrize(
    ("broker", "store"),
    [
        ("argus+postgresql+psycopg://db/shop", "postgresql+psycopg://db/shop"),
        ("argus+sqlite:////srv/shop.db", "sqlite:////srv/shop.db"),
    ],
)
def test_an_argus_broker_brings_its_own_database_as_the_store(broker: str, store: str) -> None:
    assert Argus(_app(broker_url=broker)).settings.store_url == store


def test_a_bare_argus_broker_is_a_file_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Argus(_app(broker_url="argus://")).settings.store_url == f"sqlite:///{tmp_path / 'argus.db'}"


@pytest.mark.parametrize("broker", ["redis://queue.example.com", "amqp://localhost//;amqp://10.0.0.7//"])
def test_an_sqlite_store_under_a_broker_on_another_host_is_refused(broker: str) -> None:
    with pytest.raises(errors.SettingError, match="on another host"):
        Argus(_app(broker_url=broker), store=STORE).settings
    assert Argus(_app(broker_url=broker), store="postgresql://db/shop").settings


@pytest.mark.parametrize("broker", ["redis://", "amqp://127.0.0.1:5672//", "redis://[::1]/0", "argus://", "memory://"])
def test_an_sqlite_store_beside_its_broker_is_fine(broker: str) -> None:
    assert Argus(_app(broker_url=broker), store=STORE).settings


def test_one_app_has_one_argus() -> None:
    app = _app()
    argus = Argus(app, store=STORE)
    argus.init_app(app)
    assert Argus.of(app) is argus
    with pytest.raises(errors.HookError, match="once"):
        Argus(app, store=STORE)


def test_an_argus_without_an_app_says_so() -> None:
    with pytest.raises(errors.HookError, match="init_app"):
        Argus(store=STORE).runtime


def test_the_hooks_fit_the_installed_celery() -> None:
    Argus(_app(), store=STORE).check()


def test_the_self_test_says_what_does_not_fit() -> None:
    app = _app()
    argus = Argus(app, store=STORE)
    app.amqp = AMQP(app)
    with pytest.raises(errors.HookError, match="amqp was replaced"):
        argus.check()
