"""Tools with deferred loading, the call that finds them, and a call to one of them."""

from typing import Any

from tests.doubles.apis.asking import call


def deferred(name: str, description: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties}
    function = {"type": "function", "name": name, "description": description, "parameters": parameters}
    return {**function, "defer_loading": True}


TEXT = {"type": "string"}
ORDERS = deferred("list_orders", "Lists the open orders of a customer.", customer_id=TEXT)
PROFILE = {"type": "function", "name": "profile", "defer_loading": True}
CRM: dict[str, Any] = {"type": "namespace", "name": "crm", "description": "Customers and their orders."}
CRM["tools"] = [ORDERS, PROFILE]
WEATHER = deferred("get_weather", "Tells the weather of a city.", city=TEXT)
PLAIN: dict[str, Any] = {"type": "function", "name": "now", "parameters": {"type": "object"}}
SERVER: dict[str, Any] = {"type": "tool_search"}

TOOLS = [SERVER, CRM, WEATHER, PLAIN]
FINDS = call("functions.tool_search", '{"paths": ["crm"]}')
CALLS = call("crm.list_orders", '{"customer_id":"7"}')
