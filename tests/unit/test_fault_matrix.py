"""The fault bench's choice of combinations."""

from itertools import combinations, product

from tests.faults.matrix import ACKS, BROKERS, CASES, POOLS, STORES, Run, cover, whole


def test_the_cover_runs_every_case() -> None:
    assert {run.case for run in cover()} == {case.name for case in CASES}


def test_every_broker_store_ack_mode_and_pool_meets_every_other() -> None:
    met = {pair for run in cover() for pair in _pairs(run)}
    for first, second in combinations((BROKERS, STORES, ACKS, POOLS), 2):
        assert set(product(first, second)) <= met


def test_every_case_meets_each_broker_store_ack_mode_and_pool_that_it_allows() -> None:
    for case in CASES:
        runs = [run.combination for run in cover() if run.case == case.name]
        assert {run.broker for run in runs} == set(case.brokers)
        assert {run.store for run in runs} == set(case.stores)
        assert {run.ack for run in runs} == set(case.acks)
        assert {run.pool for run in runs} == set(case.pools)


def test_the_cover_is_a_small_part_of_the_matrix_and_the_same_each_time() -> None:
    assert cover() == cover()
    assert len(set(cover())) == len(cover()) < len(whole()) / 8


def _pairs(run: Run) -> list[tuple[str, str]]:
    one = run.combination
    return list(combinations((one.broker, one.store, one.ack, one.pool), 2))
