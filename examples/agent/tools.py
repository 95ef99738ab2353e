"""What the agent can do. Each use is a step, named by the id that the model has given the call.

A tool that only reads may be used again. One that acts elsewhere sends a key, so that whoever acts can tell a repeat.
One that writes into the store's database needs neither: its rows and the step are one commit.
"""

from __future__ import annotations

from typing import Any

from argus_celery import current
from examples.agent import tables, world


def use(call: dict[str, Any]) -> Any:
    """Do what the model calls for; what it is told of it."""
    return TOOLS[call["tool"]](call["id"], **call["arguments"])


def find_order(call_id: str, order: int) -> Any:
    return current.step(f"find_order {call_id}", world.get, f"/orders/{order}")


def refund(call_id: str, order: int, cents: int) -> Any:
    """Once a human has said yes: ``project.send(f"refund {order}", True)``. The task holds no worker meanwhile."""
    if not current.wait_for(f"refund {order}"):
        return "a human has refused it"
    return current.step(f"refund {call_id}", world.post, "/refunds", {"order": order, "cents": cents}, _key(call_id))


def write_mail(call_id: str, to: str, text: str) -> Any:
    return current.step(f"write_mail {call_id}", world.post, "/mails", {"to": to, "text": text}, _key(call_id))


def ship(call_id: str, order: int, item: str) -> Any:
    with current.transaction() as connection:
        return current.step(f"ship {call_id}", tables.ship, connection, order, item)


TOOLS = {tool.__name__: tool for tool in (find_order, refund, write_mail, ship)}


def _key(call_id: str) -> str:
    """The same in each run of this task, and in no other task."""
    return f"{current.task_id} {call_id}"
