"""The store: is it there, of this version and this app's, and as the schema says?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from argus_celery.doctor.findings import Check, Finding, Level
from argus_celery.errors import StoreError, StoreUnavailable
from argus_celery.store import inspection, setup


def is_ready(argus: Any) -> bool:
    """Can the store be read without being made, or brought up to date, by that?"""
    store = argus.runtime.store
    if store.is_absent:
        return False
    try:
        return store.dialect_name != "sqlite" or (setup.version(store) or "") >= setup.HEAD
    except StoreError:
        return True  # which the checks tell


def version(argus: Any) -> Iterator[Finding]:
    store = argus.runtime.store
    init = f"celery -A {store.app_name or 'your_app'} argus init"
    if store.is_absent:
        what = f"there is no store yet, and what needs it is not checked: {setup.how_it_is_made(store)}"
        yield Finding(Level.UNKNOWN, VERSION.name, what)
        return
    try:
        if not is_ready(argus):
            made = f"the first use of {store.url.database} makes its tables or brings them up to date"
            yield VERSION.ok(f"{made}; what needs them is not checked before")
            return
        setup.check(store)
    except StoreUnavailable as error:
        yield Finding(Level.ERROR, VERSION.name, str(error), "start the database, or mend argus_store_url")
        return
    except StoreError as error:
        yield Finding(Level.ERROR, VERSION.name, str(error), init)
        return
    found = setup.version(store)
    if found is not None and found > setup.HEAD:
        yield Finding(
            Level.WARNING,
            VERSION.name,
            f"the store has version {found}, newer than this Argus ({setup.HEAD}): it serves it for one release",
            "upgrade argus-celery here too",
        )
    else:
        yield VERSION.ok(f"{store.url.render_as_string(hide_password=True)} has version {found}")


def indexes(argus: Any) -> Iterator[Finding]:
    store = argus.runtime.store
    if setup.version(store) is None:
        return  # said above
    missing = inspection.missing(store)
    for one in missing:
        yield Finding(Level.ERROR if one.is_column else Level.WARNING, INDEXES.name, one.what, one.fix)
    if not missing:
        yield INDEXES.ok("no table, column or index is missing")


def packets(argus: Any) -> Iterator[Finding]:
    """MySQL refuses a statement that is larger than its packet."""
    store, payload = argus.runtime.store, argus.settings.max_payload
    if store.dialect_name != "mysql":
        return
    packet = store.statement(inspection.max_packet)
    # Bytes may take two in the statement, and a message has an envelope.
    if packet < 2 * payload + 65_536:
        yield Finding(
            Level.WARNING,
            PACKETS.name,
            f"max_allowed_packet is {packet} bytes, too small for a payload of argus_max_payload ({payload})",
            f"set it to {max(2 * payload + 65_536, 16 * 1024 * 1024)} on the server, or lower argus_max_payload",
        )
    else:
        yield PACKETS.ok(f"max_allowed_packet ({packet}) carries argus_max_payload ({payload})")


VERSION = Check("store", version, needs_store=False)
INDEXES = Check("schema", indexes)
PACKETS = Check("payloads", packets)
CHECKS = (VERSION, INDEXES, PACKETS)
