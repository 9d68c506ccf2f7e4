"""Prepares a chat request: the exact prompt, the start of the answer, and the sampling parameters.

Takes a validated request, its tools, the engine's facts and the settings. Returns a frozen `PreparedChat`, or
raises an error before anything is generated. `/tokenize` uses it too, so it counts the model's exact prompt.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpt_oss_server.apis.chat.messages import Begun, ReadMessages, read_messages
from gpt_oss_server.apis.chat.request import CreateChatCompletion
from gpt_oss_server.constraints.wanted import Wanted
from gpt_oss_server.content.answer_form import AnswerFormat, requested_answer
from gpt_oss_server.content.nested import flat_choice, flat_format, flat_tool
from gpt_oss_server.content.tools import RequestTools
from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.runs.prepared import Prepared
from gpt_oss_server.runs.work import Work
from gpt_oss_server.toolset.bound import HostedTools, known_recipients
from gpt_oss_server.toolset.choice import wanted_of
from gpt_oss_server.turns import prompt as prompts
from inference.engine import EngineInfo, Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedChat(Prepared):
    request: CreateChatCompletion

    def sampling_of(self, choice: int) -> Sampling:
        """Gives each choice its own seed; otherwise all choices would be the same."""
        seed = None if self.sampling.seed is None else self.sampling.seed + choice
        return replace(self.sampling, seed=seed)


def prepare(
    request: CreateChatCompletion,
    tools: RequestTools,
    hosted: HostedTools,
    form: tuple[AnswerFormat, Wanted],
    *,
    work: Work,
) -> PreparedChat:
    _check_servers(hosted)
    answer, wanted = form
    model, renderer = work.model, work.model.renderer
    conversation = _read(request, model.info, hosted.kinds, renderer)
    prefill = _prefill(conversation.begun, wanted, renderer)
    thinking = prompts.thinking_of(request.effort, request.reasoning_budget, model.settings)
    bounds = thinking.budget is not None
    wanted = replace(wanted, bounds_reasoning=bounds, begun=prefill, begun_param="continue_final_message")
    head = prompts.Head.of(
        model,
        thinking,
        tools,
        hosted,
        date=request.template.date or work.date(),
        identity=request.template.model_identity,
        instructions=prompts.with_verbosity(None, request.verbosity),
        formats=answer.declared,
    )
    most = request.truncate_prompt_tokens  # where the request allows it, messages are cut to fit
    layout, shown = prompts.fitted_layout(
        head,
        tuple(conversation.segments),
        context=model.info.context_length - len(prefill),
        most=None if most in (None, -1) else most,
        truncates=most is not None,
        cuts=most is not None,
        answer=request.limit,
        param="messages",
    )
    hosted.resume_from(shown, model.encoding)
    length = layout.length + len(prefill)
    return PreparedChat(
        request=request,
        prompt=tuple(layout.tokens()),
        prefill=prefill or prompts.begun_call(wanted, model.info, renderer),
        sampling=prompts.sampling_of(request, model, work.caller, prompt=length, limit=request.limit),
        recipients=known_recipients(tools, hosted),
        tools=tools,
        hosted=hosted,
        wanted=wanted,
        thinking=thinking,
    )


def _read(request: CreateChatCompletion, info: EngineInfo, kinds: Kinds, renderer: Renderer) -> ReadMessages:
    if request.truncate_prompt_tokens is None:
        parts = (request.messages, request.tools, request.response_format)
        prompts.check_can_fit(info.context_length, "messages", *parts)
    continues_last = bool(request.continue_final_message)
    return read_messages(request.messages, renderer, kinds, continues_last=continues_last)


def _check_servers(hosted: HostedTools) -> None:
    hosted.servers.check_listed()
    for label, name in hosted.servers.approvals.values():
        raise UnsupportedField.at(
            "tools",
            f": calls of {name!r} of the MCP server {label!r} need approval, which Chat Completions "
            "cannot ask for. Set its `require_approval` to 'never', or use the Responses API.",
        )


def _prefill(begun: Begun | None, wanted: Wanted, renderer: Renderer) -> tuple[int, ...]:
    """The ids after the cue: ordinary messages, the last without its end token."""
    if begun is None:
        return ()
    if begun.content is not None and wanted.must_call:
        raise InvalidRequest(
            "The request begins the answer, but `tool_choice` requires a call in its place. Leave one out.",
            param="continue_final_message",
        )
    messages: list[Segment] = [renderer.reasoning(begun.reasoning)] if begun.reasoning else []
    if begun.content is not None:
        messages.append(renderer.answer(begun.content))
    return tuple(token for message in messages for token in message.tokens)[len(renderer.cue) : -1]


def read_tools(request: CreateChatCompletion, kinds: Kinds) -> RequestTools:
    read = RequestTools(offered=request.tool_choice != "none")
    for index, tool in enumerate(request.tools or ()):
        flat, where = flat_tool(tool, f"tools[{index}]")
        kinds.read_tool(flat, where, read)
    if request.web_search_options is not None:
        kinds.read_tool(_web_search(request.web_search_options), "web_search_options", read)
    for name in request.template.builtin_tools or ():
        kinds.read_tool({"type": kinds.hosted[name].types[0]}, "chat_template_kwargs.builtin_tools", read)
    if "program" in read.hosted or read.programs:
        problem = "a chat completion cannot wait for a program's calls. Use the Responses API."
        raise UnsupportedField(problem, param="tools")
    _check_forms(read)
    return read


def _web_search(options: Mapping[str, Any]) -> dict[str, Any]:
    """The tool that `web_search_options` declares; they nest the user's location one object deeper."""
    location = options.get("user_location")
    inner = location.get("approximate") if isinstance(location, Mapping) else None
    place = {"user_location": inner} if isinstance(inner, Mapping) else {}
    return {**options, **place, "type": "web_search"}


def _check_forms(tools: RequestTools) -> None:
    for tool in tools.clients.values():
        if tool.kind not in ("function", "custom") or tool.namespace is not None:
            kind = tool.kind if tool.namespace is None else "namespace"
            raise UnsupportedField.at(
                "tools",
                f": Chat Completions cannot represent calls of tools of type {kind!r}. Declare a "
                "function, or use the Responses API.",
            )


def read_form(
    request: CreateChatCompletion, tools: RequestTools, hosted: HostedTools
) -> tuple[AnswerFormat, Wanted]:
    answer = requested_answer(request.forms, *flat_format(request.response_format, "response_format"))
    choice, parallel = flat_choice(request.tool_choice), request.parallel_tool_calls is True
    return answer, wanted_of(choice, answer, tools, hosted, parallel=parallel)
