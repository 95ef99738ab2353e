"""Say: a run tells how far it is (``update_state``). Only the holder of the token can, and only until its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from argus_celery.flow.complete import lost
from argus_celery.flow.outage import wait_out
from argus_celery.flow.runtime import Runtime
from argus_celery.records import Claim
from argus_celery.store import leases, results

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


def say(rt: Runtime, claim: Claim, document: bytes) -> None:
    """Waits while the store is away. Raises ``LeaseLost``, with nothing written, if the claim is not held any more."""

    def write(connection: Connection) -> bool:
        held = leases.lock_held(rt.store, connection, claim.holder, [(claim.task_id, claim.token)])
        if held:
            results.say(connection, claim.task_id, claim.token, document)
        return bool(held)

    if not wait_out(lambda: rt.store.transaction(write)):
        raise lost(claim)
