"""The table of routes: every API, by the router that its folder makes.

Takes what the application has. Returns the routers in the order in which their paths are tried. A new API is
a folder and a line here.
"""

from fastapi import APIRouter

from gpt_oss_server.apis.batches.api import batches_router
from gpt_oss_server.apis.batches.work import BatchWork
from gpt_oss_server.apis.chat.api import chat_router
from gpt_oss_server.apis.chat.service import ChatService
from gpt_oss_server.apis.completions.api import completions_router
from gpt_oss_server.apis.containers.api import containers_router
from gpt_oss_server.apis.conversations.api import conversations_router
from gpt_oss_server.apis.decisions.api import decisions_router
from gpt_oss_server.apis.files.api import files_router
from gpt_oss_server.apis.messages.api import messages_router
from gpt_oss_server.apis.messages.service import MessagesService
from gpt_oss_server.apis.models.api import models_router
from gpt_oss_server.apis.moderations.api import moderations_router
from gpt_oss_server.apis.render.api import render_router
from gpt_oss_server.apis.responses.api import responses_router
from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.apis.responses.socket.api import socket_router
from gpt_oss_server.apis.traces.api import traces_router
from gpt_oss_server.apis.vector_stores.api import vector_stores_router
from gpt_oss_server.http.guards.origins import Origins
from gpt_oss_server.runs.served import Served


def batch_work(served: Served) -> BatchWork:
    """The one API with work of its own, which no request waits for."""
    return BatchWork(served)


def api_routers(served: Served, service: ResponsesService, origins: Origins) -> tuple[APIRouter, ...]:
    chat, messages = ChatService(served), MessagesService(service)
    return (
        responses_router(service),
        traces_router(served),
        socket_router(service, origins),
        conversations_router(served),
        chat_router(chat),
        messages_router(messages),
        completions_router(served, chat.prompt),
        decisions_router(served),
        moderations_router(served),
        models_router(served),
        render_router(service, chat, messages),
        containers_router(served),
        files_router(served),
        vector_stores_router(served),
        batches_router(served),
    )
