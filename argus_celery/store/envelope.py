"""A wire message as two columns: everything but the body as JSON, and the body's bytes as they are.

kombu's JSON keeps the types that headers carry (dates, UUIDs, decimals, bytes), so that a replay is the same message.
"""

from __future__ import annotations

from typing import Any

from kombu.utils import json as kombu_json

from argus_celery.records import Message

_json: Any = kombu_json  # untyped

_FIELDS = ("content_type", "content_encoding", "headers", "properties", "exchange", "routing_key", "queue")


def seal(message: Message) -> tuple[str, bytes]:
    """The message as its two columns."""
    fields = {name: getattr(message, name) for name in _FIELDS}
    if message.declares:
        fields["declares"] = message.declares
    return _json.dumps(fields), message.body


def unseal(envelope: str, body: bytes) -> Message:
    """The message that ``seal`` was given."""
    return Message(body=bytes(body), **_json.loads(envelope))
