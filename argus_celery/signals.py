"""Celery signals that report facts, each sent after the commit it reports. Nothing depends on a receiver.

The sender is the ``Argus`` store's app name, except where a table row says otherwise. Receivers take ``**kwargs``.

==================  =============================================================
signal              payload
==================  =============================================================
project_opened      project
project_closed      project
project_paused      project, reason (None: by hand)
project_resumed     project
project_cancelled   project
project_completed   project
project_failed      project
project_told        project, name (of the event)
task_enqueued       task_id, name, project_id, key
task_dispatched     task_id, token
task_completed      task_id, token, state
task_suspended      task_id, token, waits_for (an event; None: it sleeps)
task_failed         task_id, token, error
task_dead           task_id, token, losses, reason
step_retried        task_id, token, name, tried (how often), error
lease_claimed       task_id, token, holder
lease_renewed       holder, count
lease_released      task_id, token, holder
lease_lapsed        task_id, token, holder, charged (was it counted as a loss)
lease_lost          task_id, token, holder (sent by the process that lost it)
delivery_refused    task_id, token
restore_finished    report (``records.DispatchReport``)
==================  =============================================================
"""

from __future__ import annotations

from celery.utils.dispatch import Signal

project_opened = Signal(name="project_opened", providing_args={"project"})
project_closed = Signal(name="project_closed", providing_args={"project"})
project_paused = Signal(name="project_paused", providing_args={"project", "reason"})
project_resumed = Signal(name="project_resumed", providing_args={"project"})
project_cancelled = Signal(name="project_cancelled", providing_args={"project"})
project_completed = Signal(name="project_completed", providing_args={"project"})
project_failed = Signal(name="project_failed", providing_args={"project"})
project_told = Signal(name="project_told", providing_args={"project", "name"})
task_enqueued = Signal(name="task_enqueued", providing_args={"task_id", "name", "project_id", "key"})
task_dispatched = Signal(name="task_dispatched", providing_args={"task_id", "token"})
task_completed = Signal(name="task_completed", providing_args={"task_id", "token", "state"})
task_suspended = Signal(name="task_suspended", providing_args={"task_id", "token", "waits_for"})
task_failed = Signal(name="task_failed", providing_args={"task_id", "token", "error"})
task_dead = Signal(name="task_dead", providing_args={"task_id", "token", "losses", "reason"})
step_retried = Signal(name="step_retried", providing_args={"task_id", "token", "name", "tried", "error"})
lease_claimed = Signal(name="lease_claimed", providing_args={"task_id", "token", "holder"})
lease_renewed = Signal(name="lease_renewed", providing_args={"holder", "count"})
lease_released = Signal(name="lease_released", providing_args={"task_id", "token", "holder"})
lease_lapsed = Signal(name="lease_lapsed", providing_args={"task_id", "token", "holder", "charged"})
lease_lost = Signal(name="lease_lost", providing_args={"task_id", "token", "holder"})
delivery_refused = Signal(name="delivery_refused", providing_args={"task_id", "token"})
restore_finished = Signal(name="restore_finished", providing_args={"report"})
