"""The agent: it asks a model what to do, does it with its tools, and tells the model what came of it.

What the model has said and what a tool has done are steps. A run that goes on for a dead one reads them, and is soon
where that one was, with the same ids of calls, though a model never says the same thing twice.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

from argus_celery import Argus, current
from examples.agent import tables, tools, world

DB = os.environ.get("AGENT_DB", "sqlite:///agent.db")
TURNS = 10

app = Celery("agent", broker=f"argus+{DB}", backend="argus://")
app.conf.broker_connection_retry_on_startup = True
# Short times, so that nobody has to wait; a real app keeps the defaults.
argus = Argus(app, store=DB, lease_ttl=6, sweep_interval=1, dispatch_ttl=3)


@argus.durable
@app.task(name="agent.answer", autoretry_for=(OSError,), retry_backoff=1)
def answer(letter: str) -> str:
    """Do what a customer's letter asks for; what was done, in one sentence."""
    said: list[dict[str, Any]] = [{"role": "user", "content": letter}]
    for turn in range(1, TURNS + 1):
        reply = current.step(f"model {turn}", think, said)
        said.append(reply)
        if not reply["calls"]:
            return str(reply["content"])
        said += [{"role": "tool", "id": call["id"], "content": tools.use(call)} for call in reply["calls"]]
    raise RuntimeError(f"the model came to no end in {TURNS} turns")


def think(said: list[dict[str, Any]]) -> dict[str, Any]:
    """The model's reply. The most that it may cost is taken from the project's budget first, the rest given back.

    Nobody knows what a call has cost whose answer was lost: its share stays taken, so that the budget holds.
    """
    project = str(current.project)
    with current.transaction() as connection:
        tables.take(connection, project, world.MOST_TOKENS)
    reply = world.post("/model", {"said": said})
    with current.transaction() as connection:
        tables.give_back(connection, project, world.MOST_TOKENS - reply.pop("tokens"))
    return reply
