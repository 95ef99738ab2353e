"""A result backend that is away must not keep a worker: what it is to be told is remembered, and told later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def impatient(backend: Any) -> Iterator[None]:
    """Without ``result_backend_always_retry``, which would try for ever. Its own short patience a backend keeps."""
    if not getattr(backend, "always_retry", False):
        yield
        return
    backend.always_retry = False
    try:
        yield
    finally:
        backend.always_retry = bool(backend.app.conf.result_backend_always_retry)
