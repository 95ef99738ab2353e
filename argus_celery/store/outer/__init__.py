"""Transactions of the user that the store's writes may join: one file for each kind of handle on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from argus_celery.store.outer.base import Outer, outer_here

if TYPE_CHECKING:
    from argus_celery.store.engine import Store

__all__ = ["Outer", "async_outer", "django_outer", "outer_here", "outer_of"]


def outer_of(store: Store, session: Any) -> Outer:
    """The transaction of this SQLAlchemy session or connection; ``BadTransaction`` if it cannot take tasks."""
    if isinstance(session, Outer):
        return session
    from argus_celery.store.outer.alchemy import AlchemyOuter, connection_of

    return AlchemyOuter(store, connection_of(session))


def django_outer(store: Store, using: str) -> Outer:
    """Django's transaction on the database of this alias; ``BadTransaction`` if it cannot take tasks."""
    from argus_celery.store.outer.django import DjangoOuter

    return DjangoOuter(store, using)


def async_outer(store: Store, session: Any) -> Outer:
    """The transaction of an asynchronous session, for a thread that this running event loop waits for."""
    from asyncio import get_running_loop

    from argus_celery.store.outer.asynchronous import AsyncOuter, asynchronous_of

    return AsyncOuter(store, asynchronous_of(session), get_running_loop())
