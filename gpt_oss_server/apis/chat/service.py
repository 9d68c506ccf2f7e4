"""Chat Completions without HTTP.

Takes a caller and request bodies as decoded JSON. Returns `ChatRun`s and prepared prompts, or raises an
`ApiError` before anything is generated.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from gpt_oss_server.apis.chat.engines import engines_of
from gpt_oss_server.apis.chat.prepare import PreparedChat, prepare
from gpt_oss_server.apis.chat.request import CreateChatCompletion, parse_request
from gpt_oss_server.apis.chat.run import ChatRun
from gpt_oss_server.apis.chat.stored import StoredCompletions
from gpt_oss_server.apis.chat.structured import read_form
from gpt_oss_server.apis.chat.tools import read_tools
from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.caller.reservation import Spending
from gpt_oss_server.http.large_work import in_thread_if_large
from gpt_oss_server.http.unknown_fields import treat_unknown_fields
from gpt_oss_server.runs.served import Served, check_stored
from gpt_oss_server.runs.work import Work
from gpt_oss_server.toolset.bind import bound_tools
from gpt_oss_server.turns.beams import check_beams_fit
from gpt_oss_server.turns.prompt import begun_call


class ChatService:
    def __init__(self, served: Served) -> None:
        self.served = served

    def stored(self, caller: Caller) -> StoredCompletions:
        return StoredCompletions(self.served.stores.of(caller.owner).completions, self.served.ids)

    async def start(self, caller: Caller, body: object) -> ChatRun:
        """Does all work before the first token: after it returns, only the engine can fail."""
        work = self.served.work(caller)
        work.model.check_room()
        completion_id = work.ids("chatcmpl").replace("_", "-", 1)  # OpenAI's spelling
        request = await self._parsed(caller, body)
        if request.store:
            await check_stored(caller, work.keep)
        keep = partial(self.stored(caller).keep, request) if request.store else None
        prepared = await self._prepare(work, request)
        spending = await self._reserved(caller, prepared)
        return ChatRun(prepared, self.served, work, completion_id, keep, spending)

    async def _reserved(self, caller: Caller, prepared: PreparedChat) -> Spending:
        """The tokens of all choices, within the limits of the request's key."""
        request, most = prepared.request, prepared.sampling.max_tokens
        count, prompt = request.n or 1, len(prepared.prompt) + len(prepared.prefill)
        try:
            return await caller.reserve(
                prompt,
                None if request.limit is None else count * request.limit,
                None if most is None else count * most,
            )
        except BaseException:
            await prepared.hosted.close(keeps_conversation=True)
            raise

    async def prompt(self, caller: Caller, body: object) -> list[int]:
        """The model's prompt for this request, including the start of the answer if the request gives one."""
        prepared = await self._prepare(self.served.work(caller), await self._parsed(caller, body))
        await prepared.hosted.close(keeps_conversation=True)
        return [*prepared.prompt, *prepared.prefill]

    async def _parsed(self, caller: Caller, body: object) -> CreateChatCompletion:
        request = await in_thread_if_large(caller.body_size, lambda: parse_request(body), body)
        treat_unknown_fields(body, CreateChatCompletion, self.served.settings.unknown_fields)
        return request

    async def _prepare(self, work: Work, request: CreateChatCompletion) -> PreparedChat:
        model, caller = work.model, work.caller
        model.check_name(request.model)
        engines = engines_of(request, model.engine)
        tools = await in_thread_if_large(
            caller.body_size,
            lambda: read_tools(request, work.kinds),
            request.tools,
            request.functions,
            request.tool_choice,
        )
        binding = bound_tools(
            tools, self.served.toolset, caller, work.kinds, work.ids, limit=request.max_tool_calls
        )
        async with binding as hosted:

            def lay_out() -> PreparedChat:
                form = read_form(request, tools, hosted, model.encoding)
                return prepare(request, tools, hosted, form, engines=engines, work=work)

            parts = (request.messages, request.tools, request.functions, request.response_format)
            prepared = await in_thread_if_large(caller.body_size, lay_out, *parts)
            check_beams_fit(engines.beams, len(prepared.prompt) + len(prepared.prefill), request.limit)
            # A beam search ranks by score; a check of the finished beams replaces the grammar.
            by_grammar = engines.beams is None
            grammar = await model.bound(prepared.wanted, by_grammar=by_grammar)
            prefill = prepared.prefill
            if not (prefill or prepared.approved):
                prefill = begun_call(prepared.wanted, engines.info, model.renderer)
            return replace(prepared, binding=grammar, prefill=prefill)
