"""Chat Completions without HTTP: bodies in, runs and prompts out.

In: request bodies as decoded JSON. Out: `ChatRun`s and prepared prompts, or an `ApiError` before anything
is generated. Which engine, names and tools there are is `Served`'s to say.
"""

from __future__ import annotations

from dataclasses import replace

from gpt_oss_server.chat.engines import engines_of
from gpt_oss_server.chat.prepare import PreparedChat, prepare
from gpt_oss_server.chat.request import CreateChatCompletion, parse_request
from gpt_oss_server.chat.run import ChatRun
from gpt_oss_server.chat.structured import read_form
from gpt_oss_server.chat.tools import read_tools
from gpt_oss_server.serving.served import Served, in_thread_if_large


class ChatService:
    def __init__(self, served: Served) -> None:
        self.served = served

    async def start(self, body: object) -> ChatRun:
        """Everything up to the first token: after this returns, only the engine can fail."""
        self.served.check_room()
        completion_id = self.served.ids("chatcmpl").replace("_", "-", 1)  # OpenAI's spelling
        return ChatRun(await self._prepare(parse_request(body)), self.served, completion_id)

    async def prompt(self, body: object) -> list[int]:
        """The prompt that this request would give the model, a given beginning of the answer included."""
        prepared = await self._prepare(parse_request(body))
        await prepared.hosted.close(keeps_conversation=True)
        return [*prepared.prompt, *prepared.prefill]

    async def _prepare(self, request: CreateChatCompletion) -> PreparedChat:
        served = self.served
        if request.model is not None:
            served.check_model(request.model)
        engines = engines_of(request, served.engine)
        tools = read_tools(request)
        async with served.tools_for(tools, limit=request.max_tool_calls) as hosted:

            def work() -> PreparedChat:
                return prepare(
                    request,
                    tools,
                    hosted,
                    read_form(request, tools, hosted),
                    engines=engines,
                    settings=served.settings,
                    encoding=served.encoding,
                    renderer=served.renderer,
                    date=served.date(),
                )

            prepared = await in_thread_if_large(work, request.messages, request.tools, request.functions)
            if prepared.prefill:  # a grammar is of whole turns, and this one has begun
                return prepared
            by_grammar = engines.beams is None  # a search goes by the scores, and its beams are checked
            return replace(prepared, binding=await served.bound(prepared.wanted, by_grammar=by_grammar))
