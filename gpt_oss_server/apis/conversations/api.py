"""The routes of conversations: they translate between HTTP and `Conversations`."""

from fastapi import APIRouter

from gpt_oss_server.apis.conversations.conversations import (
    Conversations,
    CreateConversation,
    CreateItems,
    UpdateConversation,
)
from gpt_oss_server.http.routes import Route, add_routes
from gpt_oss_server.runs.served import Served

_ONE, _ITEM = "/{conversation}", "/{conversation}/items/{item}"


def conversations_router(served: Served) -> APIRouter:
    router = APIRouter(prefix="/v1/conversations")
    add_routes(
        router,
        served.settings,
        lambda caller: Conversations(served.stored_work(caller)),
        Route("POST", "", Conversations.create, CreateConversation),
        Route("GET", _ONE, Conversations.retrieve),
        Route("POST", _ONE, Conversations.update, UpdateConversation),
        Route("DELETE", _ONE, Conversations.delete),
        Route("GET", f"{_ONE}/items", Conversations.items, lists=True),
        Route("POST", f"{_ONE}/items", Conversations.add_items, CreateItems),
        Route("GET", _ITEM, Conversations.item),
        Route("DELETE", _ITEM, Conversations.delete_item),
    )
    return router
