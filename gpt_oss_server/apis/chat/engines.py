"""The engine that each choice of a chat request samples from: the server's, or a wrapper around it.

Takes a request and the server's engine. Returns an engine for each choice and the scores of the prompt, or a
400 for a request that this engine cannot serve.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpt_oss_server.apis.chat.request import CreateChatCompletion
from gpt_oss_server.errors import UnsupportedField
from gpt_oss_server.toolset.bound import HostedTools
from gpt_oss_server.turns.beams import beam_search
from gpt_oss_server.turns.prompt import Thinking
from gpt_oss_server.turns.prompt_scores import ScoredPrompt, scored_prompt
from inference.beams import BeamSearch
from inference.engine import Engine, EngineInfo


@dataclass(frozen=True, slots=True)
class Engines:
    plain: Engine
    scored: ScoredPrompt | None = None  # scores the prompt, for all choices
    beams: BeamSearch | None = None

    @property
    def info(self) -> EngineInfo:
        return self.plain.info

    def of(self, choice: int) -> Engine:
        if self.beams is not None:
            return self.beams.engine(choice)
        return self.scored if self.scored is not None and choice == 0 else self.plain


def engines_of(request: CreateChatCompletion, engine: Engine) -> Engines:
    top = request.prompt_logprobs
    scored = None if top is None else scored_prompt(engine, top, "prompt_logprobs")
    return Engines(engine, scored, beam_search(request, scored or engine))


def check_beams_alone(hosted: HostedTools, thinking: Thinking) -> None:
    """A beam is a single generation. Tools and budgets start another in mid-turn, outside of the search."""
    if hosted.declarations:
        raise UnsupportedField(
            "`use_beam_search` cannot be combined with tools that run on this server, as their results "
            "arrive in the middle of an answer. Leave one of them out.",
            param="use_beam_search",
        )
    if thinking.budget is not None:
        raise UnsupportedField(
            "`use_beam_search` cannot be combined with a reasoning budget, which the efforts none and "
            "minimal also set. Leave one of them out.",
            param="use_beam_search",
        )
