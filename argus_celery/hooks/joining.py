"""Durable calls inside a transaction of the user's: recorded with their own data, published behind their commit.

``argus_session`` and ``argus_using`` are options of a call: of one task they come to the publish hook, of a canvas they
are taken here, since a canvas would put them into the messages of its tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

from celery import canvas

from argus_celery.errors import BadTransaction
from argus_celery.flow.afterwards import afterwards
from argus_celery.hooks.after import check_canvas
from argus_celery.hooks.attached import Attached, attached
from argus_celery.records import Message
from argus_celery.store.outer import django_outer, outer_of

SESSION, USING = "argus_session", "argus_using"


@contextmanager
def joining_transaction(argus: Any, session: Any = None, using: str | None = None) -> Iterator[None]:
    """What is recorded in this block is part of the transaction of this session, or of Django's on this database.

    Raises ``BadTransaction`` if that one cannot take it; without either, nothing is changed.
    """
    if session is None and using is None:
        yield
        return
    if session is not None and using is not None:
        raise BadTransaction("session= is a transaction of SQLAlchemy's, using= one of Django's: give one of them")
    store = argus.runtime.store
    with (outer_of(store, session) if using is None else django_outer(store, using)).inside():
        yield


def keep_for_commit(argus: Attached, message: Message) -> None:
    """An ordinary task that is sent inside the transaction leaves behind its commit too; nothing repeats it."""
    afterwards(argus.runtime, (), partial(argus.publisher.send_plain, [message]))


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """What ``joining_transaction`` takes of the options of a call."""
    return {"session": options.get(SESSION), "using": options.get(USING)}


def install() -> None:
    """Once in a process."""
    for cls in (canvas._chain, canvas.group, canvas._chord):
        if not hasattr(cls.apply_async, "joins_transaction"):
            cls.apply_async = _joining(cls.apply_async)


def _joining(apply_async: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(apply_async)
    def joining(self: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        check_canvas(self)
        ours = {name: options.pop(name) for name in (SESSION, USING) if name in options}
        if not ours:
            return apply_async(self, args, kwargs, **options)
        with joining_transaction(attached(self.app), **given(ours)):
            return apply_async(self, args, kwargs, **options)

    joining.joins_transaction = True  # type: ignore[attr-defined]
    return joining
