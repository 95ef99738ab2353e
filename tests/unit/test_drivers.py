"""A driver that would stop every greenlet is refused when the worker starts, one that is not there at once."""

import importlib.util

import pytest

from argus_celery.config import Settings
from argus_celery.errors import SettingError, StoreError
from argus_celery.flow.runtime import Runtime
from argus_celery.hooks.drivers import check_driver
from argus_celery.store.engine import Store


class Greenlets:
    is_green = True


class Processes:
    is_green = False


def runtime(url: str) -> Runtime:
    return Runtime(Store(url), Settings.from_mapping({"argus_store_url": url}), None)  # type: ignore[arg-type]


POSTGRES = "postgresql+psycopg://localhost/shop"


@pytest.mark.skipif(not importlib.util.find_spec("psycopg_binary"), reason="psycopg without its C")
def test_psycopg_that_waits_in_c_is_refused_with_what_to_set() -> None:
    with pytest.raises(SettingError, match="PSYCOPG_WAIT_FUNC=wait_select"):
        check_driver(Greenlets, runtime(POSTGRES))


@pytest.mark.parametrize("url", ["mysql+mysqldb://localhost/shop", "postgresql+psycopg2://localhost/shop"])
def test_drivers_in_c_are_refused(url: str) -> None:
    with pytest.raises(SettingError, match="use psycopg or pymysql"):
        check_driver(Greenlets, runtime(url))


@pytest.mark.parametrize("url", ["mysql+pymysql://localhost/shop", "sqlite:////tmp/shop.db"])
def test_drivers_in_python_and_files_are_taken(url: str) -> None:
    check_driver(Greenlets, runtime(url))


def test_a_pool_without_greenlets_takes_every_driver() -> None:
    check_driver(Processes, runtime(POSTGRES))


@pytest.mark.skipif(bool(importlib.util.find_spec("MySQLdb")), reason="mysqlclient is installed")
def test_a_url_that_names_no_driver_is_answered_with_the_one_that_the_extra_brings() -> None:
    with pytest.raises(StoreError, match=r"needs the driver MySQLdb.*argus-celery\[mysql\].*mysql\+pymysql://"):
        Store("mysql://localhost/shop").engine
