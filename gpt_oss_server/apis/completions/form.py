"""The form of a plain completion: the grammar that its engine enforces.

Takes a validated request and the model. Returns a grammar, None for free text, or raises a 400 that
names the field.
"""

from __future__ import annotations

import asyncio

from gpt_oss_server.apis.completions.request import CreateCompletion
from gpt_oss_server.constraints.binding import bind_plain
from gpt_oss_server.constraints.wanted import Wanted
from gpt_oss_server.content.answer_form import requested_answer
from gpt_oss_server.content.dialect import NESTED
from gpt_oss_server.errors import UnsupportedField
from gpt_oss_server.models.model import Model
from inference.grammar import Grammar


async def grammar_of(request: CreateCompletion, model: Model) -> Grammar | None:
    answer = requested_answer(request, request.response_format, "response_format", NESTED, model.encoding)
    wanted = Wanted(answer=answer.form, banned=answer.banned)
    if not wanted.binds:
        return None
    param, info = wanted.param, model.info
    if not info.enforces_grammar:
        raise UnsupportedField(
            f"`{param}` needs an engine that enforces grammars, which the model {info.name!r} does not. "
            "Leave it out.",
            param=param,
        )
    return await asyncio.to_thread(bind_plain, wanted, model.encoding)
