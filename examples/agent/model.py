"""A model by script. As with a real one, no two of its replies are the same: each call of a tool gets a new id."""

from __future__ import annotations

import re
import secrets
from typing import Any


def reply(said: list[dict[str, Any]]) -> dict[str, Any]:
    """What comes next in this conversation."""
    order = int(re.findall(r"[Oo]rder (\d+)", said[0]["content"])[0])
    told = [one["content"] for one in said if one["role"] == "tool"]
    if not told:
        return _calls("Let me see.", ("find_order", {"order": order}))
    found = told[0]
    if len(told) == 1:
        return _calls(
            "The postage comes back, and a new one goes out.",
            ("refund", {"order": order, "cents": found["postage"]}),
            ("ship", {"order": order, "item": found["item"]}),
        )
    if len(told) == 3:
        return _calls("The customer has to know.", ("write_mail", {"to": found["customer"], "text": told[2]}))
    paid = f"{found['postage']} cents are refunded" if isinstance(told[1], dict) else told[1]
    return _calls(f"Order {order}: {paid}, and {told[2]}.")


def _calls(content: str, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    named = [{"id": f"call_{secrets.token_hex(4)}", "tool": tool, "arguments": arguments} for tool, arguments in calls]
    return {"role": "assistant", "content": content, "calls": named}
