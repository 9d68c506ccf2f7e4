"""Binds a request whose past is known: its tools, its prompt and the form of its turn.

Takes a validated request, with its references resolved, and the past that it continues. Returns a frozen
`PreparedResponse`, or raises an error before anything is generated; the tools are closed then.
"""

from __future__ import annotations

from dataclasses import replace

from gpt_oss_server.apis.responses.input import tools_of
from gpt_oss_server.apis.responses.past import Past
from gpt_oss_server.apis.responses.prepare import PreparedResponse, prepare
from gpt_oss_server.apis.responses.request import CreateResponse
from gpt_oss_server.constraints.wanted import Wanted
from gpt_oss_server.content.tools import RequestTools
from gpt_oss_server.runs.prepared import bind_and_lay_out
from gpt_oss_server.runs.served import Served
from gpt_oss_server.runs.work import Work
from gpt_oss_server.toolset.bound import HostedTools
from inference.engine import EngineInfo


async def bind(
    served: Served,
    work: Work,
    request: CreateResponse,
    response_id: str,
    past: Past,
    *,
    info: EngineInfo | None = None,
    **how: bool,
) -> PreparedResponse:
    """`info` takes the place of the model's facts; `how` is passed on to `prepare`."""
    model = work.model
    form = request.text.format if request.text else None

    def read_tools() -> RequestTools:
        offered = request.tool_choice != "none"
        return tools_of(work.kinds, request.tools, past.history, request.input, offered=offered)

    def lay_out(tools: RequestTools, hosted: HostedTools) -> PreparedResponse:
        return prepare(request, past, tools, hosted, work, info or model.info, **how)

    async def finish(laid: PreparedResponse) -> PreparedResponse:
        if laid.compaction is None:
            return laid
        binding = await model.bound(Wanted(answers_only=True))
        return replace(laid, compaction=replace(laid.compaction, binding=binding))

    return await bind_and_lay_out(
        work,
        served.toolset,
        read_tools,
        lay_out,
        (request.input, request.instructions, request.tools, request.tool_choice, form),
        limit=request.max_tool_calls,
        conversation=past.session or response_id,
        finish=finish,
    )
