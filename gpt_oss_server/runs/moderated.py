"""The moderation of a run: what its request gave and what its answer says, judged by another model.

Takes a function that judges a text, and the turn events of each choice. Returns the same events; where the
request blocks what is flagged, they follow their judgement, or only an end is left. It must not know an API:
that of moderations gives the function to the application.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.content.parts import text_of
from gpt_oss_server.errors import ApiError, UnsupportedField
from gpt_oss_server.harmony.events import MessageStarted, TextDelta
from gpt_oss_server.http.shared_fields import Moderation
from gpt_oss_server.settings import Settings
from gpt_oss_server.turns.events import TurnEvent, TurnFinished
from gpt_oss_server.turns.transcript import Transcript
from inference.engine import Finish

Found = dict[str, Any]  # a result, or an error
Judge = Callable[[Caller, str, str], Awaitable[Found]]  # of a model's name and a text; raises an `ApiError`
_OPENAIS = ("omni-moderation", "text-moderation")
_NO_TEXT = {"type": "error", "code": "no_text", "message": "There is no text to judge."}


class Moderated:
    def __init__(
        self, judge: Callable[[str], Awaitable[Found]], given: object, blocks: frozenset[str]
    ) -> None:
        """`given` is the request's input; `blocks` names what is blocked if it is flagged."""
        self._judge = judge
        self._given = "\n".join(reversed([*_newest(given)]))
        self._blocks = blocks
        self._input: asyncio.Task[Found] | None = None  # the choices share it
        self._said: dict[int, list[str]] = {}
        self._outputs: dict[int, Found] = {}

    async def events(
        self, turn: AsyncGenerator[list[TurnEvent], None], transcript: Transcript, index: int = 0
    ) -> AsyncGenerator[list[TurnEvent], None]:
        """The events of one choice. Call `ended` after them."""
        said = self._said[index] = []
        held: list[list[TurnEvent]] = []
        async with aclosing(turn):
            if "input" in self._blocks and (await self._of_input()).get("flagged"):
                yield [TurnFinished(Finish.FILTERED)]
                return
            is_shown = False
            async for batch in turn:
                for event in batch:
                    if isinstance(event, TextDelta):
                        said += [event.text] if is_shown else []
                    elif isinstance(event, MessageStarted):
                        is_shown = event.header.channel != "analysis"
                        said += ["\n"] if said and is_shown else []
                if "output" in self._blocks:
                    held.append(batch)
                else:
                    yield batch
        if held and (await self._of_output(index)).get("flagged"):
            transcript.segments.clear()  # no message stays in the conversation; the tokens count
            held = [[TurnFinished(Finish.FILTERED)]]
        for batch in held:
            yield batch

    async def ended(self, index: int = 0) -> None:
        """Judges what was not judged before."""
        await asyncio.gather(self._of_input(), self._of_output(index))

    @property
    def found(self) -> tuple[Found, list[Found]] | None:
        """The result of the input, and one of each choice, once there are any."""
        if self._input is None or not self._outputs:
            return None
        return self._input.result(), [self._outputs[index] for index in sorted(self._outputs)]

    def _of_input(self) -> asyncio.Task[Found]:
        if self._input is None:
            self._input = asyncio.create_task(self._judged(self._given, "input"))
        return self._input

    async def _of_output(self, index: int) -> Found:
        if index not in self._outputs:
            self._outputs[index] = await self._judged("".join(self._said[index]), "output")
        return self._outputs[index]

    async def _judged(self, text: str, what: str) -> Found:
        if not text.strip():
            return dict(_NO_TEXT)
        try:
            return await self._judge(text)
        except ApiError as error:
            if what in self._blocks:  # what cannot be judged does not pass
                raise
            return {"type": "error", "code": error.code or error.type, "message": error.message}


def moderated(
    wanted: Moderation | None, given: object, caller: Caller, settings: Settings, judge: Judge | None
) -> Moderated | None:
    """The moderation that a request wants of its own input, which it has `given`, and of its answer."""
    if wanted is None:
        return None
    model = judging_model(wanted.model, settings, "moderation")
    if judge is None:  # where prompts are shown, and nothing is generated
        return None
    return Moderated(partial(judge, caller, model), given, wanted.blocks)


def judging_model(name: str | None, settings: Settings, param: str) -> str:
    if settings.moderation is None:
        raise UnsupportedField(
            "This server has no model for moderation. Its operator can name one that it serves, e.g. with "
            "`--models guard=openai/gpt-oss-safeguard-20b --moderation guard`.",
            param=param,
        )
    return settings.moderation if name is None or name.startswith(_OPENAIS) else name


def _newest(given: object) -> Iterator[str]:
    """The texts that are new since the model last wrote: the user's and those of tools, newest first."""
    items = given if isinstance(given, list) else [given]
    for item in reversed(items):
        if not isinstance(item, Mapping):
            yield str(item or "")
        elif item.get("role") in ("user", "tool", "function"):
            yield text_of(item.get("content"), "input")
        elif "output" in item:
            output = item["output"]
            yield output if isinstance(output, str) else text_of(output, "input")
        elif item.get("role") not in ("system", "developer"):
            return
