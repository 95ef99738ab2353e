"""Names and ids: which ones every store holds, and compares alike. Of others no row can ever be found."""

from __future__ import annotations

import re
from functools import lru_cache

LONGEST = 255
_UNHELD = re.compile("[\0\ud800-\udfff]")


def fault_of(name: object) -> str | None:
    """What keeps it from being a name or an id, as the end of a sentence."""
    if not isinstance(name, str):
        return f"must be a text, not {name!r}"
    if not 1 <= len(name) <= LONGEST:
        return f"has 1 to {LONGEST} characters, not {len(name)}: {name[:50]!r}"
    if _UNHELD.search(name) is not None:
        return f"has a character that no database can hold: {name[:50]!r}"
    if name != name.rstrip(" "):
        return f"must not end with a blank, which not every database tells apart: {name[:50]!r}"
    return None


def fits(name: str, glob: str) -> bool:
    """As ``dialect.glob`` has it: ``*`` stands for any letters and ``?`` for one, and nothing else is special."""
    return _pattern(glob).fullmatch(name) is not None


@lru_cache
def _pattern(glob: str) -> re.Pattern[str]:
    wild = {"*": ".*", "?": "."}
    return re.compile("".join(wild.get(sign) or re.escape(sign) for sign in glob), re.DOTALL)


def is_possible(name: object) -> bool:
    """Ask before a statement is made of what a person or another program has given."""
    return fault_of(name) is None
