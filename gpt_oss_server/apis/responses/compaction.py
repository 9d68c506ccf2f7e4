"""Compaction: the model writes a summary, which replaces the conversation so far.

Takes a conversation's segments and the room in the context. Returns the prompt that requests the summary and,
from the model's messages, a `Compacted`. From that come the segments that replace the earlier ones, and the
item that the client keeps. The item is sealed, so that only this server can read it, and complete, so that
the client may drop all items before it. The instructions and the user's newest messages are kept verbatim.
"""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from gpt_oss_server.apis.responses.resource import shown_usage
from gpt_oss_server.caller.limiter import Spending
from gpt_oss_server.constraints.binding import Binding
from gpt_oss_server.errors import ContextLengthExceeded, GenerationFailed, from_inference
from gpt_oss_server.harmony.encoding import MESSAGE, Encoding
from gpt_oss_server.harmony.events import MessageFinished
from gpt_oss_server.harmony.history import Segment, kept
from gpt_oss_server.items.builder import Item
from gpt_oss_server.items.compaction import Compacted, compaction_item
from gpt_oss_server.models.model import Model
from gpt_oss_server.runs.usage import usage_of_turns
from gpt_oss_server.runs.work import Work
from gpt_oss_server.turns.debug import log_turn
from gpt_oss_server.turns.plan import TurnPlan
from gpt_oss_server.turns.prompt import Head
from gpt_oss_server.turns.transcript import Transcript
from gpt_oss_server.turns.turn import Turn
from inference.engine import InferenceError, Sampling

_SUMMARY_REQUEST = """\
This conversation has grown too long and will be replaced by a summary, which you write now. You will go on \
from the summary alone, with your instructions and the user's latest messages beside it. Write down:
- what the user wants, in their own words where these matter, and what they have ruled out;
- what was decided, and why;
- what was done and found: names of files, commands, results, numbers and errors that are still needed;
- what remains to be done, and the very next step.
Do not call tools and do not answer the user. Write the summary, and nothing else."""
_CUT = " […]"  # marks where a long message is cut
SHARE = 8  # the summary and the user's messages that it keeps may each take an eighth of the room
_MOST_OF_USER, _MOST_SUMMARY = 16_384, 8_192  # tokens
_LEAST_SUMMARY = 256


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction that runs before the response, or in its place."""

    prompt: tuple[int, ...]
    sampling: Sampling
    instructions: tuple[str, ...]
    user_messages: tuple[str, ...]
    alone: bool  # no response follows it
    binding: Binding = field(default_factory=Binding)

    async def make(self, transcript: Transcript, model: Model) -> Compacted:
        """`transcript` belongs to the prompt. It holds the sampled tokens even if this fails."""
        plan = TurnPlan(
            engine=model.engine,
            encoding=model.encoding,
            renderer=model.renderer,
            sampling=self.sampling,
            binding=self.binding,
            limits=model.limits,
        )
        async with aclosing(Turn(plan, transcript).events()) as events:
            async for _ in events:
                pass
        summary = _summary_in(transcript.messages)
        if not summary:
            raise GenerationFailed("The model wrote no summary, so the conversation could not be compacted.")
        return Compacted(self.instructions, self.user_messages, summary)

    async def answer(
        self, response_id: str, work: Work, messages: list[Item], spending: Spending
    ) -> dict[str, Any]:
        """The API's object: the user's messages and the compaction, to send in place of the conversation."""
        transcript = Transcript(self.prompt)
        try:
            compacted = await self.make(transcript, work.model)
        except InferenceError as error:
            raise from_inference(error) from error
        finally:
            usage = usage_of_turns([transcript])
            spending.settle(usage.total)
            log_turn(f"{response_id} compaction", transcript)
        return {
            "id": response_id,
            "object": "response.compaction",
            "created_at": int(work.clock()),
            "output": [*messages, compaction_item(work.ids, compacted, work.keep.sealer)],
            "usage": shown_usage(usage),
        }


def _summary_in(messages: Sequence[MessageFinished]) -> str:
    """The answer or, if there is none, the text that the model wrote in another channel."""
    to_user = [message for message in messages if message.header.recipient is None]
    for channel in ("final", "commentary", "analysis"):
        texts = [message.text.strip() for message in to_user if message.header.channel == channel]
        if text := "\n\n".join(text for text in texts if text):
            return text
    return ""


def room_for_summary(context: int) -> int:
    return max(min(context // SHARE, _MOST_SUMMARY), 1)


def summary_limit(history: Sequence[Segment], context: int) -> int:
    """The most tokens of the summary: about as many as it replaces, and a few sentences at least."""
    replaced = sum(len(segment.tokens) for segment in kept(history) if segment.role != "developer")
    return min(room_for_summary(context), max(replaced, _LEAST_SUMMARY))


def summary_prompt(history: Sequence[Segment], head: Head, context: int) -> tuple[int, ...]:
    """The prompt that requests the summary. It begins like the conversation's own, for the prefix cache.

    If the history does not fit, the prompt has its newest part, without messages that alone are too long.
    """
    request = head.renderer.user(_SUMMARY_REQUEST)
    shown = kept(history)
    room = context - room_for_summary(context)
    needed = [segment for segment in shown if segment.role == "developer" or segment.stands_for]
    left = room - head.layout([*needed, request]).length
    if left < 0:
        raise ContextLengthExceeded(
            "The instructions, tools and earlier summaries alone leave no room to compact the conversation.",
            param="input",
        )
    chosen: set[int] = {id(segment) for segment in needed}
    for segment in reversed(shown):
        if id(segment) not in chosen and len(segment.tokens) <= left:
            chosen.add(id(segment))
            left -= len(segment.tokens)
    fitting = [segment for segment in shown if id(segment) in chosen]
    return tuple(head.layout([*fitting, request]).tokens())


def instructions_in(history: Sequence[Segment]) -> tuple[str, ...]:
    return tuple(
        segment.text for segment in history if segment.role == "developer" and segment.text is not None
    )


def user_messages_in(history: Sequence[Segment], encoding: Encoding, room: int) -> tuple[str, ...]:
    """As many of the user's newest messages as fit, and at least the beginning of the newest."""
    left = min(room // SHARE, _MOST_OF_USER)
    messages: list[str] = []
    for segment in reversed(history):
        if segment.role != "user" or segment.stands_for:
            continue
        body = segment.tokens[segment.tokens.index(MESSAGE) + 1 : -1]
        if len(body) > left:
            if not messages:
                messages.append(encoding.decode(body[:left]).rstrip("\ufffd") + _CUT)
            break
        messages.append(encoding.decode(body))
        left -= len(body)
    return tuple(reversed(messages))
