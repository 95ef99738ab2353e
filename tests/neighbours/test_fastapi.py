"""``examples/fastapi``: an order and its task are one transaction, in an application that nothing blocks."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import _state
from celery.contrib.testing.worker import start_worker

pytest.importorskip("fastapi")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("SHOP_DB", f"sqlite:///{tmp_path / 'shop.db'}")
    before = _state._tls.current_app
    yield importlib.import_module("examples.fastapi.shop")
    _state._tls.current_app = before
    del sys.modules["examples.fastapi.shop"]


async def ask(web: Any, method: str, path: str, query: str = "") -> tuple[int, Any]:
    """What an ASGI server does for one request."""
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": []}
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await web(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_an_order_that_fastapi_takes_is_charged_and_one_that_it_refuses_leaves_no_task(shop: Any) -> None:
    async def main() -> tuple[Any, Any, Any]:
        async with shop.lifespan(shop.web):
            taken = await ask(shop.web, "POST", "/orders", "amount=17")
            refused = await ask(shop.web, "POST", "/orders", "amount=0")
            return taken, refused, await ask(shop.web, "GET", "/progress")

    (status, taken), (refusal, _), (_, progress) = asyncio.run(main())
    assert (status, refusal, taken["order"], sum(progress.values())) == (202, 422, 1, 1)
    with start_worker(shop.shop, pool="threads", perform_ping_check=False, shutdown_timeout=30):
        assert shop.shop.AsyncResult(taken["task"]).get(timeout=15) == 17
