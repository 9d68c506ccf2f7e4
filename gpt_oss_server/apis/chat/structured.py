"""The form that a chat request requires of its turn: `response_format`, `tool_choice` and strict tools.

Takes a validated request and its tools. Returns a `Wanted` and the formats that the prompt declares, or
raises a 400 that names the field as the client sent it.
"""

from __future__ import annotations

from gpt_oss_server.apis.chat.request import CreateChatCompletion
from gpt_oss_server.constraints.wanted import Wanted
from gpt_oss_server.content.answer_form import AnswerFormat, requested_answer
from gpt_oss_server.content.dialect import FLAT, NESTED
from gpt_oss_server.content.tools import RequestTools
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.toolset.bound import HostedTools
from gpt_oss_server.toolset.choice import wanted_of


def read_form(
    request: CreateChatCompletion, tools: RequestTools, hosted: HostedTools, encoding: Encoding
) -> tuple[AnswerFormat, Wanted]:
    answer = requested_answer(request, request.response_format, "response_format", NESTED, encoding)
    return answer, _wanted(request, answer, tools, hosted)


def _wanted(
    request: CreateChatCompletion, answer: AnswerFormat, tools: RequestTools, hosted: HostedTools
) -> Wanted:
    parallel, old = request.allows_parallel_calls, request.function_call
    if old is None:
        choice = request.tool_choice
        return wanted_of(choice, answer, tools, hosted, dialect=NESTED, parallel=parallel)
    named = old if isinstance(old, str) else {"type": "function", "name": old.get("name")}
    return wanted_of(named, answer, tools, hosted, where="function_call", dialect=FLAT, parallel=parallel)
