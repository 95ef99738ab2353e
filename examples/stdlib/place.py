"""Where this run keeps its files, told to the workers by the environment."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER, BROKER, STORE = "STDLIB_FOLDER", "STDLIB_BROKER", "STDLIB_STORE"

folder = Path(os.environ.get(FOLDER, "."))


def broker(name: str) -> str:
    """A file of its own for each side, unless a server was named."""
    return os.environ.get(BROKER) or f"argus://{folder / name}.db"


def database(name: str) -> str:
    return os.environ.get(STORE) or f"sqlite:///{folder / name}.db"


def starts(name: str) -> Path:
    return folder / f"{name}.starts"
