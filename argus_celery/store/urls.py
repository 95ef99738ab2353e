"""What an ``argus://`` broker URL means: the database behind it."""

from __future__ import annotations

import os

SCHEME = "argus"
DEFAULT_FILE = "argus.db"


def store_url_of(broker_url: str) -> str | None:
    """The SQLAlchemy URL of the database that an ``argus://`` broker lives in; ``None`` for any other broker.

    ``argus://`` is ``argus.db`` in the working directory, ``argus:///path/x.db`` a file,
    ``argus+postgresql+psycopg://…`` a server.
    """
    scheme, separator, rest = broker_url.partition("://")
    if scheme.startswith(SCHEME + "+"):
        return scheme.removeprefix(SCHEME + "+") + separator + rest
    return "sqlite:///" + os.path.abspath(rest or DEFAULT_FILE) if scheme == SCHEME and separator else None
