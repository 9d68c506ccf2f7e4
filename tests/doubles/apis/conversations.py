"""The conversations of a service, for a program of its own process."""

from __future__ import annotations

from gpt_oss_server.apis.conversations.conversations import Conversations
from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.caller.caller import LOCAL


def conversations_of(service: ResponsesService) -> Conversations:
    return Conversations(service.served.work(LOCAL))
