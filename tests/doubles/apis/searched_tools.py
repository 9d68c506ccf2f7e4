"""Tools with deferred loading, the call that finds them, and a call to one of them."""

from __future__ import annotations

from typing import Any

from tests.doubles.apis.asking import call

ORDERS: dict[str, Any] = {
    "type": "function",
    "name": "list_orders",
    "description": "Lists the open orders of a customer.",
    "parameters": {"type": "object", "properties": {"customer_id": {"type": "string"}}},
    "defer_loading": True,
}
CRM: dict[str, Any] = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers and their orders.",
    "tools": [ORDERS, {"type": "function", "name": "profile", "defer_loading": True}],
}

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "defer_loading": True,
}
PLAIN: dict[str, Any] = {"type": "function", "name": "now", "parameters": {"type": "object"}}
SERVER: dict[str, Any] = {"type": "tool_search"}

TOOLS = [SERVER, CRM, WEATHER, PLAIN]
FINDS = call("functions.tool_search", '{"paths": ["crm"]}')
CALLS = call("crm.list_orders", '{"customer_id":"7"}')
