"""``argus top`` at work: it looks, draws, and does what its keys say."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.live import Live

from argus_celery.cli.top.keys import Keys
from argus_celery.cli.top.screen import KEYS, View, frame, ordered
from argus_celery.cli.top.speed import Speed
from argus_celery.errors import ArgusError
from argus_celery.hooks.holder import is_dead_seen_from_here
from argus_celery.store.board import Board, board

SHARE = 4
"""It rests this many times as long as a look took, so that a large store is not kept busy by being looked at."""
SHORTEST = 0.2


def is_able() -> bool:
    """Can the terminal move its cursor?"""
    return os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


class Top:
    """``run_once`` looks if it is time, and answers one key."""

    def __init__(self, argus: Any, every: float, console: Console | None = None, keys: Keys | None = None) -> None:
        self.argus = argus
        self.view = View(every=every)
        self.board: Board | None = None
        self.quits = False
        self._speed = Speed()
        self._look_at = 0.0
        self._asked: Callable[[], str] | None = None
        self._console = console or Console(highlight=False)
        self._keys = keys or Keys()

    def run(self) -> None:
        """Until q or Ctrl-C. The terminal gets back what it showed before."""
        try:
            with self._keys, Live(console=self._console, screen=True, auto_refresh=False) as live:
                while not self.quits:
                    self.run_once(live)
        except KeyboardInterrupt:
            pass

    def run_once(self, live: Live) -> None:
        now = time.monotonic()
        if now >= self._look_at and not (self.view.frozen and self.board is not None):
            self._look()
        if self.board is not None:
            store, size = self.argus.runtime.store, self._console.size
            picture = frame(store, self.board, self._speed, self.view, size.width, size.height)
            live.update(picture, refresh=True)
        key = self._keys.read(self.view.every if self.view.frozen else self._look_at - time.monotonic())
        if key is not None:
            self.answer(key)

    def _look(self) -> None:
        began = time.monotonic()
        try:
            self.board = board(self.argus.runtime.store, is_dead_seen_from_here)
        except ArgusError as error:
            if self.board is None:
                raise
            self.view.message = str(error)
        else:
            self._speed.note(self.board)
            if self.view.selected not in self._names():
                self.view.selected = next(iter(self._names()), None)
        ended = time.monotonic()
        self._look_at = ended + max(self.view.every, SHARE * (ended - began))

    def _names(self) -> list[str]:
        projects = self.board.projects if self.board is not None else ()
        return [project.name for project in ordered(projects, self._speed, self.view.sort)]

    def answer(self, key: str) -> None:
        """Do what a key says."""
        self.view.message = ""
        asked, self._asked = self._asked, None
        if asked is not None:
            self._do(asked) if key in "yY" else None
            return
        self.does().get(key, self._help)()

    def does(self) -> dict[str, Callable[[], None]]:
        """What each key does; another one tells these."""
        return {
            "q": self._quit,
            "up": lambda: self._move(-1),
            "k": lambda: self._move(-1),
            "down": lambda: self._move(1),
            "j": lambda: self._move(1),
            "p": lambda: self._do(self._pause_or_resume),
            "r": lambda: self._do(self._retry),
            "c": self._ask_to_cancel,
            "s": self._sort,
            "space": self._freeze,
            "h": self._help,
            "+": lambda: self._pace(0.5),
            "-": lambda: self._pace(2),
        }

    def _quit(self) -> None:
        self.quits = True

    def _help(self) -> None:
        self.view.message = KEYS

    def _move(self, by: int) -> None:
        names = self._names()
        if names:
            at = names.index(self.view.selected) if self.view.selected in names else 0
            self.view.selected = names[max(0, min(len(names) - 1, at + by))]

    def _sort(self) -> None:
        self.view.sort = self.view.sort.next

    def _freeze(self) -> None:
        self.view.frozen = not self.view.frozen

    def _pace(self, times: float) -> None:
        self.view.every = min(60.0, max(SHORTEST, self.view.every * times))

    # --- what changes a project ------------------------------------------------------------------------------------

    def _do(self, what: Callable[[], str]) -> None:
        if self.view.selected is None:
            return
        try:
            self.view.message = what()
        except ArgusError as error:
            self.view.message = str(error)
        self._look_at = 0.0

    def _pause_or_resume(self) -> str:
        name = str(self.view.selected)
        project = self.argus.project(name)
        if project.progress().paused:
            project.resume()
            return f"{name} goes on"
        project.pause()
        return f"{name} is paused"

    def _retry(self) -> str:
        name = str(self.view.selected)
        return f"{name}: put back {len(self.argus.project(name).retry_failed())}"

    def _ask_to_cancel(self) -> None:
        name = self.view.selected
        if name is not None:
            self.view.message = f"Cancel {name!r}? It cannot be undone: y or n"
            self._asked = lambda: f"{name} is {self.argus.project(name).cancel()}"
