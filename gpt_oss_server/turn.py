"""One turn of the model: generate, decode, and tell what happened as it happens.

In: an engine, a prompt and how to sample. Out: batches of turn events, one batch per engine step, and at the
end a `TurnFinished`. This is the one place where tools of ours will loop in: both APIs see the same events.
It knows nothing of items, ids or HTTP. Closing the iterator closes the generation.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from gpt_oss_server.harmony.decoder import Decoder
from gpt_oss_server.harmony.events import HarmonyEvent, MessageFinished, MessageStarted, Slip, TextDelta
from gpt_oss_server.transcript import Transcript
from inference.engine import Engine, Finish, Sampling


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """The model has stopped: by itself, or because a limit was reached."""

    finish: Finish


TurnEvent = MessageStarted | TextDelta | MessageFinished | TurnFinished


async def run_turn(
    engine: Engine, decoder: Decoder, transcript: Transcript, sampling: Sampling
) -> AsyncGenerator[list[TurnEvent], None]:
    finish = Finish.STOP
    async with aclosing(engine.generate(transcript.prompt, sampling)) as steps:
        async for step in steps:
            transcript.cached_tokens += step.cached_tokens
            transcript.tokens += step.tokens
            events: list[TurnEvent] = []
            for token in step.tokens:
                for event in decoder.feed(token):
                    _record(event, transcript, events)
            if events:
                yield events
            if step.finish is not None:
                finish = step.finish
    closing = close_turn(decoder, transcript)
    closing.append(TurnFinished(finish))
    yield closing


def close_turn(decoder: Decoder, transcript: Transcript) -> list[TurnEvent]:
    """What the decoder still holds, told: also after a failure, so that no open item loses its text."""
    events: list[TurnEvent] = []
    for event in decoder.close():
        _record(event, transcript, events)
    return events


def _record(event: HarmonyEvent, transcript: Transcript, events: list[TurnEvent]) -> None:
    if isinstance(event, Slip):
        transcript.slips.append(event)
        return
    if isinstance(event, MessageFinished):
        transcript.messages.append(event)
    events.append(event)
