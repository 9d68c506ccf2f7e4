"""Chat Completions without HTTP.

Takes a caller and request bodies as decoded JSON. Returns `ChatRun`s and prepared prompts, or raises an
`ApiError` before anything is generated.
"""

from dataclasses import replace
from functools import partial

from gpt_oss_server.apis.chat.prepare import PreparedChat, prepare, read_form, read_tools
from gpt_oss_server.apis.chat.request import CreateChatCompletion, parse_request
from gpt_oss_server.apis.chat.run import ChatRun
from gpt_oss_server.apis.chat.stored import StoredCompletions
from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.content.parts import treat_images
from gpt_oss_server.content.tools import RequestTools
from gpt_oss_server.http.large_work import in_thread_if_large
from gpt_oss_server.http.unknown_fields import treat_unknown_fields
from gpt_oss_server.runs.attached import with_files
from gpt_oss_server.runs.moderated import moderated
from gpt_oss_server.runs.prepared import bind_and_lay_out
from gpt_oss_server.runs.served import Served, check_stored
from gpt_oss_server.runs.work import Work
from gpt_oss_server.toolset.bound import HostedTools


class ChatService:
    def __init__(self, served: Served) -> None:
        self.served = served

    def stored(self, caller: Caller) -> StoredCompletions:
        return StoredCompletions(self.served.stores.of(caller.owner).completions, self.served.ids)

    async def start(self, caller: Caller, body: object) -> ChatRun:
        """Does all work before the first token: after it returns, only the engine can fail."""
        request = await self._parsed(caller, body)
        work = self.served.work(caller, request.model)
        work.model.check_room()
        completion_id = work.new_id("chatcmpl", request.request_id, lasts=bool(request.store))
        if request.store:
            await check_stored(caller, work.keep)
        keep = partial(self.stored(caller).keep, request) if request.store else None
        prepared = await self._prepare(work, request)
        spending = await prepared.reserve(caller, request.limit, choices=request.n or 1)
        completion_id = completion_id.replace("_", "-", 1)  # OpenAI's spelling
        return ChatRun(prepared, self.served, work, completion_id, keep, spending)

    async def prompt(self, caller: Caller, body: object) -> list[int]:
        """The model's prompt for this request, including the start of the answer if the request gives one."""
        request = await self._parsed(caller, body)
        prepared = await self._prepare(self.served.work(caller, request.model), request)
        await prepared.close()
        return [*prepared.prompt, *prepared.prefill]

    async def _parsed(self, caller: Caller, body: object) -> CreateChatCompletion:
        request = await in_thread_if_large(caller.body_size, lambda: parse_request(body), body)
        treat_unknown_fields(body, CreateChatCompletion, self.served.settings.unknown_fields)
        treat_images(request.messages, "messages", self.served.settings.images)
        return request

    async def _prepare(self, work: Work, request: CreateChatCompletion) -> PreparedChat:
        read = await with_files(request.messages, "messages", work)
        request = request if read is request.messages else request.model_copy(update={"messages": read})
        judge, settings = self.served.judge, self.served.settings
        judging = moderated(request.moderation, request.messages, work.caller, settings, judge)

        def lay_out(tools: RequestTools, hosted: HostedTools) -> PreparedChat:
            form = read_form(request, tools, hosted)
            prepared = prepare(request, tools, hosted, form, work=work)
            return replace(prepared, moderated=judging)

        return await bind_and_lay_out(
            work,
            self.served.toolset,
            lambda: read_tools(request, work.kinds),
            lay_out,
            (request.messages, request.tools, request.response_format),
            limit=request.max_tool_calls,
        )
