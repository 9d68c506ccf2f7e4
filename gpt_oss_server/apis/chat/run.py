"""Runs one chat completion and yields it as batches of chunks.

Takes a `PreparedChat`. Yields batches of chunks: each choice begins with its role and ends with its finish
reason; the usage follows where the request wants it. After a failure the client still receives all generated
text, and the last chunk is the error. Closing the iterator cancels every choice.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from gpt_oss_server.apis.chat.fold import Folded
from gpt_oss_server.apis.chat.prepare import PreparedChat
from gpt_oss_server.apis.chat.stream import ChoiceStream, Form
from gpt_oss_server.apis.chat.writers import ChunkPart
from gpt_oss_server.caller.limiter import Spending
from gpt_oss_server.content.logprobs import Speller
from gpt_oss_server.errors import ApiError
from gpt_oss_server.http.shared_fields import shown_metadata
from gpt_oss_server.runs.chunks import shown_usage
from gpt_oss_server.runs.life import Life
from gpt_oss_server.runs.served import Served
from gpt_oss_server.runs.usage import Usage, usage_of_choices
from gpt_oss_server.runs.work import Work
from gpt_oss_server.toolset.bound import HostedTools
from gpt_oss_server.turns.debug import debug_metadata
from gpt_oss_server.turns.events import TurnFinished
from gpt_oss_server.turns.merged import merged
from gpt_oss_server.turns.transcript import Transcript
from gpt_oss_server.turns.turn import Turn
from inference.engine import Finish

Chunk = dict[str, Any]
Keep = Callable[[Chunk], Awaitable[None]]
_REASONING_FIELDS = {
    "both": ("reasoning", "reasoning_content"),
    "reasoning": ("reasoning",),
    "reasoning_content": ("reasoning_content",),
}


@dataclass(slots=True)
class _Choice:
    transcript: Transcript
    turn: Turn
    stream: ChoiceStream
    hosted: HostedTools
    finish: Finish = Finish.STOP
    ended: bool = False
    shown: int = 0  # tokens whose ids have been sent, where the request wants ids


class ChatRun:
    """Iterate once over `chunks()`; `error` is then set if it failed."""

    def __init__(
        self,
        prepared: PreparedChat,
        served: Served,
        work: Work,
        completion_id: str,
        keep: Keep | None = None,
        spending: Spending | None = None,
    ) -> None:
        """`keep` stores the completion; `spending` holds the tokens that were reserved for it."""
        self._keep = keep
        self._kept = Folded()
        self.request = prepared.request
        self._prepared = prepared
        self._served = served
        self._work = work
        self._encoding = work.model.encoding
        self._id = completion_id
        self._created = int(work.clock())
        self._model = prepared.request.model or work.model.name
        self._life = Life(
            served,
            work,
            "chat",
            "The chat completion",
            completion_id,
            self.request,
            usage=self._usage,
            finish=self._finishes,
            spending=spending,
        )
        self._choices = [self._choice(index) for index in range(prepared.request.n or 1)]
        self._has_begun = False

    async def chunks(self) -> AsyncGenerator[list[Chunk], None]:
        sources = [self._generate(index, choice) for index, choice in enumerate(self._choices)]
        try:
            with self._life.running():
                parallel = self._served.parallel_choices(self._work.caller.client, len(sources))
                with self._life.failing(), parallel as most:
                    async with aclosing(merged(sources, most)) as batches:
                        async for parts in batches:
                            chunks = self._chunks(parts)
                            if self._keep is not None:
                                for chunk in chunks:
                                    self._kept.feed(chunk)
                            yield chunks
                    if self._keep is not None:
                        usage = {"usage": self._shown_usage()}
                        await self._keep({**self._kept.completion(), **usage, **self._moderation()})
                yield self._end()
        finally:
            for choice in self._choices:
                await choice.hosted.close(keeps_conversation=False)

    @property
    def ignored(self) -> Sequence[str]:
        return self._life.ignored

    @property
    def error(self) -> ApiError | None:
        return self._life.error

    def _finishes(self) -> str:
        finishes = {str(choice.finish) for choice in self._choices if choice.ended}
        return ",".join(sorted(finishes)) or "in_progress"

    async def wait(self) -> dict[str, Any]:
        """The completion once it has ended; raises the error if it failed."""
        folded = Folded()
        async with aclosing(self.chunks()) as batches:
            async for batch in batches:
                for chunk in batch:
                    if self.error is None:
                        folded.feed(chunk)
        if self.error is not None:
            raise self.error
        return {**folded.completion(), "usage": self._shown_usage()}

    def _choice(self, index: int) -> _Choice:
        prepared = self._prepared
        hosted = prepared.hosted.in_conversation(self._work.ids("session"))  # no client chooses it
        transcript = Transcript(prepared.prompt)
        own = replace(prepared, hosted=hosted, sampling=prepared.sampling_of(index))
        plan = own.plan(self._work.model, shows_stop=bool(self.request.include_stop_str_in_output))
        turn = Turn(plan, transcript)
        return _Choice(transcript, turn, ChoiceStream(index, self._form(hosted)), hosted)

    def _form(self, hosted: HostedTools) -> Form:
        request, settings = self.request, self._served.settings
        fields = _REASONING_FIELDS[settings.chat_reasoning_field]
        # The engine must have them too; debugging uses them without a request for them.
        shows_scores = request.scores is not None and self._prepared.sampling.logprobs is not None
        return Form(
            new_call_id=lambda: self._work.ids("call"),
            runs_here=hosted.runs,
            kinds=hosted.kinds,
            cite=hosted.cite,
            answers_json=self._prepared.wanted.answer is not None,
            reasoning_fields=() if request.include_reasoning is False else fields,
            preambles_are_reasoning=request.has_form or settings.chat_preamble_field == "reasoning",
            stops=request.stops,
            shows_stop=bool(request.include_stop_str_in_output),
            speller=Speller(self._encoding) if shows_scores else None,
            custom=frozenset(
                recipient for recipient, tool in self._prepared.tools.clients.items() if tool.kind == "custom"
            ),
        )

    async def _generate(self, index: int, choice: _Choice) -> AsyncGenerator[list[ChunkPart], None]:
        stream = choice.stream
        self._life.begins(choice.transcript)
        begun = choice.turn.prefill(self._prepared.prefill)
        choice.shown = len(self._prepared.prefill)
        yield [*stream.start(), *stream.feed(begun, silently=True)]
        moderated = self._prepared.moderated
        events = choice.turn.events()
        if moderated is not None:
            events = moderated.events(events, choice.transcript, index)
        async with aclosing(events) as turn:
            async for batch in turn:
                if type(last := batch[-1]) is TurnFinished:
                    choice.finish = last.finish
                if parts := stream.feed(batch):
                    yield self._with_ids(choice, parts)
                if stream.stopped:
                    break
        if choice.finish is Finish.STOP and not stream.stopped:
            await choice.turn.check_form()  # the client already has the text when this error reaches it
        if moderated is not None:
            await moderated.ended(index)
        choice.ended = True
        end = stream.finish(choice.finish, choice.turn.stopped_by, choice.transcript.cut_short)
        yield self._with_ids(choice, [*stream.feed(choice.turn.close()), *end])

    def _with_ids(self, choice: _Choice, parts: list[ChunkPart]) -> list[ChunkPart]:
        """Adds the ids of the tokens that these parts, and the headers before them, consist of."""
        if self.request.return_token_ids:
            tokens = choice.transcript.tokens
            parts[-1]["token_ids"] = tokens[choice.shown :]
            choice.shown = len(tokens)
        return parts

    def _chunks(self, parts: Sequence[ChunkPart]) -> list[Chunk]:
        chunks = [
            {
                "id": self._id,
                "object": "chat.completion.chunk",
                "created": self._created,
                "model": self._model,
                "choices": [part],
            }
            for part in parts
        ]
        if self.request.return_token_ids and not self._has_begun:
            chunks[0]["prompt_token_ids"] = [*self._prepared.prompt, *self._prepared.prefill]
        self._has_begun = True
        if self.request.stream and self.request.includes_usage:
            for chunk in chunks:
                chunk["usage"] = None
        return chunks

    def _end(self) -> list[Chunk]:
        """The last chunks, after all choices ended or one failed: pending text, then usage or the error."""
        last: list[Chunk] = []
        if self.error is not None:
            for choice in self._choices:
                if not choice.ended:
                    last += self._chunks(choice.stream.feed(choice.turn.close()))
            last.append(dict(self.error.body()))
        else:
            last += self._closing_chunk()
        for choice in self._choices:
            self._life.ends(choice.transcript, choice.finish)
        return last

    def _closing_chunk(self) -> list[Chunk]:
        """The chunk without choices, unless it would hold nothing."""
        [chunk] = self._chunks([{"index": 0}])
        chunk["choices"] = []
        if self.request.includes_usage:
            chunk["usage"] = self._shown_usage()
        is_whole = not self.request.stream
        if self.request.metadata is not None and (is_whole or self.request.debug):
            chunk["metadata"] = self._metadata()
        chunk |= self._moderation()
        wanted = is_whole or self.request.includes_usage or "metadata" in chunk or "moderation" in chunk
        return [chunk] if wanted else []

    def _moderation(self) -> dict[str, Any]:
        """The results, where the request wants any: one of the input, and one of each choice."""
        moderated = self._prepared.moderated
        if moderated is None or (found := moderated.found) is None:
            return {}
        given, outputs = found
        return {"moderation": {"input": _results([given]), "output": _results(outputs)}}

    def _metadata(self) -> dict[str, Any]:
        metadata = shown_metadata(self.request.metadata)
        if self.request.debug:
            for index, choice in enumerate(self._choices):
                after = f"_{index}" if index else ""
                debug = debug_metadata(self._encoding, choice.transcript)
                metadata |= {f"{key}{after}": value for key, value in debug.items()}
        return metadata

    def _usage(self) -> Usage:
        return usage_of_choices([choice.transcript for choice in self._choices])

    def _shown_usage(self) -> dict[str, Any]:
        return shown_usage(self._usage(), with_reasoning=True)


def _results(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The results, or the first error among them."""
    errors = [each for each in found if each["type"] == "error"]
    if errors:
        return errors[0]
    return {"type": "moderation_results", "model": found[0]["model"], "results": found}
