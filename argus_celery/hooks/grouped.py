"""What a task group of asyncio raises in place of the end of a run that one of its tasks has reached."""

from __future__ import annotations

from collections.abc import Iterator

from celery.exceptions import Retry, TaskPredicate

from argus_celery.errors import LeaseLost, StoreUnavailable, Suspended

_ENDS = (Suspended, TaskPredicate, StoreUnavailable)


def out_of_group(error: BaseException) -> BaseException:
    """The end that this group of exceptions holds: a lost lease or a retry, or if all of it are ends, the first."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    all_of_it = list(_leaves(error))
    for kind in (LeaseLost, Retry):
        if found := [one for one in all_of_it if isinstance(one, kind)]:
            return found[0]
    return all_of_it[0] if all(isinstance(one, _ENDS) for one in all_of_it) else error


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from _leaves(one)
        else:
            yield one
