"""What every flow is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from argus_celery.config import Settings
from argus_celery.flow.window import Window
from argus_celery.records import Message, Publish, SameCall
from argus_celery.store.engine import Store


def same_bytes(one: Message, other: Message) -> bool:
    return one.headers.get("task") == other.headers.get("task") and one.body == other.body


@dataclass(frozen=True)
class Runtime:
    """The store, the settings, how messages are published, and what this process remembers between calls."""

    store: Store
    settings: Settings
    publish: Publish
    foreign_results: bool = False
    """Does another result backend than ``argus://`` have to be told of tasks that end without a run?"""
    same_call: SameCall = same_bytes
    """How a known key's task is compared with the one that meets it."""
    urgency: Callable[[int], int] = int
    """The store's order of a message priority: the higher one goes out first."""
    ring: Callable[[], None] = lambda: None
    """Asks all workers to look now whether what they run is still theirs; they do by themselves at each renewal."""
    window: Window = field(default_factory=Window)
    project_ids: dict[str, int] = field(default_factory=dict)

    @property
    def dispatch_ttl_ms(self) -> int:
        return round(self.settings.dispatch_ttl * 1000)

    @property
    def dispatch_ttl_max_ms(self) -> int:
        return round(self.settings.dispatch_ttl_max * 1000)

    @property
    def lease_ttl_ms(self) -> int:
        return round(self.settings.lease_ttl * 1000)

    @property
    def unknown_deadline_ms(self) -> int | None:
        """None is never."""
        return round(self.settings.unknown_deadline * 1000) if self.settings.unknown_deadline else None
