"""What every flow is given."""

from __future__ import annotations

from dataclasses import dataclass, field

from argus_celery.config import Settings
from argus_celery.flow.window import Window
from argus_celery.records import Publish
from argus_celery.store.engine import Store


@dataclass(frozen=True)
class Runtime:
    """The store, the settings, how messages are published, and what this process remembers between calls."""

    store: Store
    settings: Settings
    publish: Publish
    foreign_results: bool = False
    """Does another result backend than ``argus://`` have to be told of tasks that end without a run?"""
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
