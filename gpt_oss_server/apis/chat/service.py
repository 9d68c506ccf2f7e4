"""Chat Completions without HTTP.

Takes request bodies as decoded JSON. Returns `ChatRun`s and prepared prompts, or raises an `ApiError` before
anything is generated. `Served` decides on the engine, the model names and the tools.
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
from gpt_oss_server.caller.limiter import reserve
from gpt_oss_server.caller.reservation import Spending
from gpt_oss_server.http.large_work import in_thread_if_large
from gpt_oss_server.runs.served import Served
from gpt_oss_server.turns.beams import check_beams_fit
from gpt_oss_server.turns.prompt import begun_call


class ChatService:
    def __init__(self, served: Served) -> None:
        self.served = served
        self.stored = StoredCompletions(lambda: served.completions, served.ids)

    async def start(self, body: object) -> ChatRun:
        """Does all work before the first token: after it returns, only the engine can fail."""
        self.served.check_room()
        completion_id = self.served.ids("chatcmpl").replace("_", "-", 1)  # OpenAI's spelling
        request = await self._parsed(body)
        if request.store:
            await self.served.check_stored()
        keep = partial(self.stored.keep, request) if request.store else None
        prepared = await self._prepare(request)
        spending = await self._reserved(prepared)
        return ChatRun(prepared, self.served, completion_id, keep, spending)

    async def _reserved(self, prepared: PreparedChat) -> Spending:
        """The tokens of all choices, within the limits of the request's key."""
        request, most = prepared.request, prepared.sampling.max_tokens
        count, prompt = request.n or 1, len(prepared.prompt) + len(prepared.prefill)
        try:
            return await reserve(
                prompt,
                None if request.limit is None else count * request.limit,
                None if most is None else count * most,
            )
        except BaseException:
            await prepared.hosted.close(keeps_conversation=True)
            raise

    async def prompt(self, body: object) -> list[int]:
        """The model's prompt for this request, including the start of the answer if the request gives one."""
        prepared = await self._prepare(await self._parsed(body))
        await prepared.hosted.close(keeps_conversation=True)
        return [*prepared.prompt, *prepared.prefill]

    async def _parsed(self, body: object) -> CreateChatCompletion:
        request = await in_thread_if_large(lambda: parse_request(body), body)
        self.served.treat_unknown_fields(body, CreateChatCompletion)
        return request

    async def _prepare(self, request: CreateChatCompletion) -> PreparedChat:
        served = self.served
        if request.model is not None:
            served.check_model(request.model)
        engines = engines_of(request, served.engine)
        tools = await in_thread_if_large(
            lambda: read_tools(request), request.tools, request.functions, request.tool_choice
        )
        async with served.tools_for(tools, limit=request.max_tool_calls) as hosted:

            def work() -> PreparedChat:
                return prepare(
                    request,
                    tools,
                    hosted,
                    read_form(request, tools, hosted, served.encoding),
                    engines=engines,
                    settings=served.settings,
                    encoding=served.encoding,
                    renderer=served.renderer,
                    date=served.date(),
                )

            parts = (request.messages, request.tools, request.functions, request.response_format)
            prepared = await in_thread_if_large(work, *parts)
            check_beams_fit(engines.beams, len(prepared.prompt) + len(prepared.prefill), request.limit)
            # A beam search ranks by score; a check of the finished beams replaces the grammar.
            by_grammar = engines.beams is None
            binding = await served.bound(prepared.wanted, by_grammar=by_grammar)
            prefill = prepared.prefill
            if not (prefill or prepared.approved):
                prefill = begun_call(prepared.wanted, engines.info, served.renderer)
            return replace(prepared, binding=binding, prefill=prefill)
