"""A prepared request: everything that is decided before its first token, the same for every API.

Takes the work of a request, its tools and a function that lays its prompt out. Binds the tools and the form
of the turn, and returns a frozen `Prepared`, from which a run plans its turns. If anything fails, the tools
are closed. It must not know an API.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.caller.limiter import Spending
from gpt_oss_server.constraints.binding import Binding
from gpt_oss_server.constraints.wanted import Wanted
from gpt_oss_server.content.tools import RequestTools
from gpt_oss_server.harmony.recipients import Recipients
from gpt_oss_server.http.large_work import in_thread_if_large
from gpt_oss_server.models.model import Model
from gpt_oss_server.runs.moderated import Moderated
from gpt_oss_server.runs.work import Work
from gpt_oss_server.toolset.bind import bound_tools
from gpt_oss_server.toolset.bound import HostedTools
from gpt_oss_server.toolset.offered import Toolset
from gpt_oss_server.turns.plan import TurnPlan
from gpt_oss_server.turns.prompt import Thinking
from gpt_oss_server.turns.stops import own_stops
from inference.engine import Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    prompt: tuple[int, ...]  # ends with the cue; empty if only its length was requested
    prefill: tuple[int, ...] = ()  # the start of the answer, where the request gives one
    sampling: Sampling
    recipients: Recipients
    tools: RequestTools
    hosted: HostedTools
    approved: tuple[tuple[str, str], ...] = ()  # (recipient, arguments) of calls that the turn begins with
    wanted: Wanted  # the form that the turn must have
    thinking: Thinking
    moderated: Moderated | None = None
    binding: Binding = field(default_factory=Binding)  # the grammars or the check that enforce `wanted`

    def plan(self, model: Model, *, shows_stop: bool = False) -> TurnPlan:
        return TurnPlan(
            engine=model.engine,
            encoding=model.encoding,
            renderer=model.renderer,
            sampling=self.sampling,
            recipients=self.recipients,
            tools=self.hosted,
            approved=self.approved,
            binding=self.binding,
            reasoning_budget=self.thinking.budget,
            parallel=self.wanted.parallel,
            hidden_stops=own_stops(self.sampling, shown=shows_stop),
            limits=model.limits,
        )

    async def reserve(
        self, caller: Caller, limit: int | None, *, choices: int = 1, outlives: bool = False
    ) -> Spending:
        """The tokens of all choices, within the limits of the caller's key. `limit`: of each output."""
        most = self.sampling.max_tokens
        try:
            return await caller.reserve(
                len(self.prompt) + len(self.prefill),
                None if limit is None else choices * limit,
                None if most is None else choices * most,
                outlives=outlives,
            )
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Closes the tools of a request that does not run."""
        await self.hosted.close(keeps_conversation=True)


P = TypeVar("P", bound=Prepared)


async def bind_and_lay_out(
    work: Work,
    toolset: Callable[[], Awaitable[Toolset]],
    read_tools: Callable[[], RequestTools],
    lay_out: Callable[[RequestTools, HostedTools], P],
    parts: Sequence[object],
    *,
    limit: int | None,
    conversation: str = "",
    finish: Callable[[P], Awaitable[P]] | None = None,
) -> P:
    """Reads the tools, binds them, lays the prompt out, and binds the turn to its form.

    `parts`: those of the request that may be large. `limit`: of the calls that run here. `finish` may
    complete the prepared request.
    """
    size = work.caller.body_size
    tools = await in_thread_if_large(size, read_tools, *parts)
    binding = bound_tools(
        tools, toolset, work.caller, work.kinds, work.ids, limit=limit, conversation=conversation
    )
    async with binding as hosted:
        laid = await in_thread_if_large(size, lambda: lay_out(tools, hosted), *parts)
        bound = await work.model.bound(laid.wanted, client=work.caller.client, owner=work.caller.owner)
        laid = replace(laid, binding=bound)
        return laid if finish is None else await finish(laid)
