"""``Argus(app)``: the one object a user adds to their Celery app. It reads the settings and installs the hooks."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, partial
from typing import Any, Unpack

from celery import Celery
from celery.signals import import_modules

from argus_celery.config import NONE_MEANS_NEVER, PREFIX, Settings
from argus_celery.errors import HookError
from argus_celery.flow import steer
from argus_celery.flow.prune import Pruning
from argus_celery.flow.runtime import Runtime
from argus_celery.flow.watch import Watch
from argus_celery.hooks import annotations as annotating
from argus_celery.hooks import (
    attached,
    awaiting,
    backends,
    bare,
    beat,
    children,
    chords,
    control,
    deliver,
    firing,
    joining,
    mapped,
    newtask,
    publish,
    replace,
    selftest,
    ticking,
    transport,
    worker,
)
from argus_celery.hooks import durable as durability
from argus_celery.hooks.backend import ArgusBackend, is_foreign
from argus_celery.hooks.deliver import same_call
from argus_celery.hooks.locality import check_locality
from argus_celery.hooks.publisher import Publisher
from argus_celery.hooks.receipts import Receipts
from argus_celery.hooks.threads import in_thread
from argus_celery.project import Project, ProjectOptions
from argus_celery.store import setup
from argus_celery.store.engine import Store
from argus_celery.store.pruning import Ages
from argus_celery.store.urls import store_url_of

FIXUP = "argus_celery.app:fixup"

transport.register()
bare.register()


class Argus:
    """Durable projects for a Celery app: ``Argus(app, store="sqlite:///…")``, or ``Argus()`` and ``init_app``.

    Every setting is ``app.conf.argus_<name>``; a keyword here wins over it. Settings are checked when they are first
    needed: at the first durable call or when a worker starts.
    """

    durable = staticmethod(durability.durable)

    def __init__(self, app: Celery | None = None, *, store: str | None = None, **settings: Any) -> None:
        self._given = {PREFIX + name: value for name, value in settings.items()}
        if store is not None:
            self._given["argus_store_url"] = store
        self._app: Celery | None = None
        if app is not None:
            self.init_app(app)

    @classmethod
    def of(cls, app: Celery) -> Argus | None:
        """The Argus of this app, if it has one."""
        found: Argus | None = app.__dict__.get(attached.KEY)
        return found

    def init_app(self, app: Celery) -> None:
        """Install on an app, also on one that has made tasks, connections or messages already."""
        if Argus.of(app) not in (None, self):
            raise HookError(f"{app!r} has an Argus already: call Argus(app) once for each app")
        self._app = app
        attached.attach(app, self)
        self._settle_settings(app)
        publish.install(app)
        children.install(app)
        joining.install()
        mapped.install(app)
        control.install(app)
        backends.change_each(app, awaiting.be_patient)
        backends.change_each(app, chords.count_in_store)
        annotating.install(app)
        replace.install(app)
        worker.install(self)
        beat.install(self)
        ticking.listen()

    def _settle_settings(self, app: Celery) -> None:
        """Keywords go into ``app.conf``, without reading it early: a pool child that is spawned finds them there."""
        app.fixups = {*app.fixups, FIXUP}
        if app.configured:
            app.conf.update(self._given)
        else:
            app.on_after_configure.connect(self._configured, weak=False)

    def _configured(self, sender: Celery, **_: Any) -> None:
        sender.conf.update(self._given)

    @property
    def app(self) -> Celery:
        if self._app is None:
            raise HookError("this Argus has no app yet: call argus.init_app(app)")
        return self._app

    @cached_property
    def settings(self) -> Settings:
        """The settings; raises ``SettingError`` that names what is wrong."""
        conf = self.app.conf
        broker = conf.broker_write_url or conf.broker_url
        given = {key: conf[key] for key in _setting_names(self.app)} | self._given
        if not given.get("argus_store_url"):
            given["argus_store_url"] = store_url_of(str(broker or "")) or ""
        settings = Settings.from_mapping(
            {key: value for key, value in given.items() if value is not None or key in NONE_MEANS_NEVER}
        )
        check_locality(settings.store_url, broker)
        return settings

    @cached_property
    def runtime(self) -> Runtime:
        """What the flows are given."""
        name = "" if self.app.main in (None, "__main__") else self.app.main
        prepare = setup.make if self.settings.store_url.startswith("sqlite") else setup.check
        store = Store(self.settings.store_url, app_name=name, on_connect=prepare)
        return Runtime(
            store,
            self.settings,
            self.publisher,
            is_foreign(self.app.backend),
            partial(same_call, self.app),
            partial(newtask.urgency, self.app),
            partial(control.ring, self.app),
        )

    @cached_property
    def publisher(self) -> Publisher:
        return Publisher(self.app)

    @cached_property
    def receipts(self) -> Receipts:
        """What this process has paid to the user's own result backend."""
        return Receipts(self.runtime)

    @cached_property
    def watch(self) -> Watch:
        """How this process waits for results."""
        return Watch(self.runtime.store)

    @cached_property
    def results(self) -> ArgusBackend:
        """The ``argus://`` result backend, whatever backend the user has. It reads what it wrote itself."""
        return ArgusBackend(self.app, accept=[self.app.conf.result_serializer])

    def project(self, name: str, **options: Unpack[ProjectOptions]) -> Project:
        """The durable project of this name; made, open, with these options, if there is none.

        One that is there keeps the options it has: others are warned of (``project.configure`` changes them).
        """
        return Project(self, name, **options)

    async def aproject(self, name: str, **options: Any) -> Project:
        """The same for asyncio: the store is asked in another thread."""
        return await in_thread(partial(self.project, name, **options))

    def pay_debts(self, limit: int = 100) -> int:
        """Deliver outcomes that a result backend or what follows is still owed, and fire chords that are full."""
        return deliver.pay_debts(self, limit) + firing.fire_owed(self, limit)

    def fire(self, chord_ids: Iterable[str]) -> int:
        """Record what these full chords lead to; what cannot be done now is left to the sweep."""
        return firing.fire(self, chord_ids)

    def pruning(self, older_than: float | None = None) -> Pruning:
        """A pass over what has ended more than so many seconds (``argus_retention``) ago; ``run_once`` drops it."""
        return Pruning(self.runtime, lambda: self.ages(older_than))

    def ages(self, older_than: float | None = None) -> Ages:
        """Results of ordinary tasks, and saved groups, are kept for ``result_expires`` if that is longer."""
        age = self.settings.retention if older_than is None else older_than
        expires = self.results.expires
        return Ages(round(age * 1000), round(max(age, expires) * 1000) if expires else None)

    def default_project_id(self) -> int:
        return steer.open_project(self.runtime, self.settings.default_project)

    def check(self) -> None:
        """Raise ``SettingError`` or ``HookError`` if something does not fit; a worker asks when it starts."""
        self.settings  # noqa: B018 - reading it checks it
        selftest.check(self.app)


def _setting_names(app: Celery) -> list[str]:
    """The ``argus_*`` keys of the configuration, with or without the app's namespace and in either case."""
    namespace = f"{app.namespace}_".lower() if app.namespace else ""
    names = (str(key).lower() for key in app.conf)
    return sorted({name.removeprefix(namespace) for name in names if name.removeprefix(namespace).startswith(PREFIX)})


def fixup(app: Celery) -> None:
    """Celery calls it for an app that was pickled into a spawned pool child: it gets its Argus again."""

    def install(**_: Any) -> None:
        if Argus.of(app) is None:
            Argus(app)

    # The app is only half made here; this is sent before it makes its tasks.
    import_modules.connect(install, sender=app, weak=False)
