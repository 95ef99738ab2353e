"""What is outside: a model that costs tokens, orders to look up, refunds and mails; and how the agent talks to it.

Like any good API that acts, it keeps the answer that it gave under a key: asked again, it answers the same and does
nothing. A model is no such API.
"""

from __future__ import annotations

import json
import os
import time
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.request import Request, urlopen

from examples.agent import model
from examples.loopback import LoopbackServer

MOST_TOKENS = 1000
"""That one reply may cost."""
ITEMS = ("lamp", "chair", "clock")


def get(path: str) -> Any:
    return _ask(Request(f"{os.environ['AGENT_WORLD']}{path}"))


def post(path: str, body: dict[str, Any], key: str | None = None) -> Any:
    headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
    return _ask(Request(f"{os.environ['AGENT_WORLD']}{path}", json.dumps(body).encode(), headers))


def _ask(request: Request) -> Any:
    with urlopen(request, timeout=10) as answer:
        return json.load(answer)


class World(LoopbackServer):
    """The server, and the ledger of what has really happened. ``seconds``: how long each answer takes to come."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__(_Handler)
        self.seconds = seconds
        self.wishes: set[int] = set()
        """The orders that the model wants to refund."""
        self.effects: list[tuple[str, dict[str, Any]]] = []
        self.requests = self.replies = self.tokens = self.repeats = 0
        self._answers: dict[str, Any] = {}

    def think(self, said: list[dict[str, Any]]) -> dict[str, Any]:
        reply = model.reply(said)
        tokens = min(MOST_TOKENS, len(json.dumps([*said, reply])) // 4)
        with self._lock:
            self.replies += 1
            self.tokens += tokens
            self.wishes |= {call["arguments"]["order"] for call in reply["calls"] if call["tool"] == "refund"}
        return {**reply, "tokens": tokens}

    def act(self, what: str, body: dict[str, Any], key: str) -> Any:
        """Once for each key."""
        with self._lock:
            if key in self._answers:
                self.repeats += 1
            else:
                self.effects.append((what, body))
                self._answers[key] = {"done": f"{what.removesuffix('s')} {len(self.effects)}"}
            return self._answers[key]


class _Handler(BaseHTTPRequestHandler):
    server: World

    def do_GET(self) -> None:
        number = int(self.path.removeprefix("/orders/"))
        item = ITEMS[number % len(ITEMS)]
        self._answer({"item": item, "postage": 490 + number, "customer": f"customer-{number}@example.org"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/model":
            self._answer(self.server.think(body["said"]))
        else:
            self._answer(self.server.act(self.path.strip("/"), body, self.headers["Idempotency-Key"]))

    def _answer(self, answer: Any) -> None:
        self.server.requests += 1
        time.sleep(self.server.seconds)  # done, and not yet told
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass
