"""One seed is one run: the same work and the same faults, each of them on every place where it makes sense."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.fault import Fault
from tests.chaos.faults import KINDS, fault, lacks
from tests.chaos.options import Options
from tests.chaos.servers import LockStore
from tests.chaos.work import KINDS as PIECES
from tests.chaos.work import piece
from tests.faults.matrix import BROKERS, STORES


def told(one: Fault) -> tuple[str, int, float]:
    return one.name, one.choice, one.seconds


def test_a_seed_makes_the_same_work_and_the_same_faults_again() -> None:
    one, other = Options(seed=5), Options(seed=6)
    drawn = [told(fault(one, number)) for number in range(50)]
    assert drawn == [told(fault(one, number)) for number in range(50)]
    assert drawn != [told(fault(other, number)) for number in range(50)]
    sent = [piece(5, number).expected() for number in range(200)]
    assert sent == [piece(5, number).expected() for number in range(200)]
    assert sent != [piece(6, number).expected() for number in range(200)]


def test_every_kind_of_work_and_of_fault_comes_up() -> None:
    assert {type(piece(1, number)) for number in range(2000)} == set(PIECES)
    places = [Options(broker=broker, store=store) for broker, store in product(BROKERS, STORES)]
    possible = {kind for kind in KINDS if not lacks(kind)}
    assert {type(fault(place, number)) for place in places for number in range(2000)} == possible


def test_no_two_pieces_share_a_tag() -> None:
    tags = [one.tag for number in range(2000) for one in piece(1, number).expected()]
    assert len(tags) == len(set(tags))


def test_a_lock_that_one_thread_took_is_given_back_by_another(tmp_path: Path) -> None:
    world: Any = SimpleNamespace(place=SimpleNamespace(url=f"sqlite:///{tmp_path / 'store.db'}"))
    lock = LockStore(Random(1))
    with ThreadPoolExecutor() as other:
        other.submit(lock.begin, world).result()
    with sqlite3.connect(tmp_path / "store.db", timeout=0) as writer:
        with pytest.raises(sqlite3.OperationalError):
            writer.execute("BEGIN IMMEDIATE")
        lock.heal(world)
        writer.execute("BEGIN IMMEDIATE")
