"""The scripted engine: replays the turns of a script, for demos, tests and bug reports.

A turn's text starts right after `<|start|>assistant`. The distribution of a script is one token with all the
probability, so every log-probability is 0 and no sampling field changes the answer. It runs in the event loop
itself; only `when` is searched in a thread. Text and `when` need `openai_harmony`, imported on first use.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from inference.backends.script_file import Script, ScriptedTurn, read_script
from inference.engine import (
    SAMPLING_FIELDS,
    CheckpointError,
    Engine,
    EngineClosed,
    EngineFailed,
    EngineInfo,
    Finish,
    ModelNotFound,
    Sampling,
    Step,
    TokenLogprob,
    output_limit,
)
from inference.options import EngineOptions
from inference.paths import expanded_path

CONTEXT_LENGTH = 131_072
VOCAB_SIZE = 201_088
TOKENS_PER_STEP = 16  # enough that the engine costs nothing per token, few enough that streams stay smooth


class ScriptedEngine:
    """An `Engine` that answers from a script. All generations share the order of its turns."""

    def __init__(self, script: Script, *, name: str = "scripted", context: int = CONTEXT_LENGTH) -> None:
        self._turns = tuple(_PreparedTurn(turn) for turn in script.turns)
        self._in_order = tuple(turn for turn in self._turns if turn.source.when is None)
        self._conditional = tuple(turn for turn in self._turns if turn.source.when is not None)
        self._script = script
        self._served = 0
        self._closed = asyncio.Event()
        self.active = 0
        self.info = EngineInfo(
            name=name,
            context_length=context,
            vocab_size=VOCAB_SIZE,
            honours=SAMPLING_FIELDS - {"alternatives"},
            replays=True,
            description=f"Replays a script of {len(script.turns)} turn(s).",
        )

    def prepare(self) -> None:
        """Encodes text in advance, so that no request waits in the event loop for the vocabulary."""
        for turn in self._turns:
            _ = turn.tokens
        if self._conditional:
            _encoding()

    async def check(self) -> None:
        """A script does not fail."""

    async def close(self) -> None:
        self._closed.set()

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        limit = output_limit(len(tokens), sampling, self.info)
        self._check_open()
        if limit == 0:
            yield Step((), Finish.LENGTH)  # without using up a turn of the script
            return
        turn = await self._chosen(tokens, sampling.continued)
        done = len(sampling.continued) if turn.begins_with(sampling.continued) else 0
        answer, finish = _cut(turn, limit + done, sampling.stop_token_ids)
        answer = answer[done:]
        self.active += 1
        try:
            began, sent, count = asyncio.get_running_loop().time(), 0, len(answer)
            while True:
                end = await self._due(began, sent, count)
                part = answer[sent:end]
                yield Step(part, finish if end == count else None, _logprobs(part, sampling))
                if end == count:
                    return
                sent = end
                await asyncio.sleep(0)  # lets other streams run
                self._check_open()
        finally:
            self.active -= 1

    async def _chosen(self, prompt: Sequence[int], sampled: tuple[int, ...]) -> _PreparedTurn:
        """The turn that began with the sampled tokens, for an answer that another engine began."""
        if not sampled:
            return await self._choose(prompt)
        before = prompt[: len(prompt) - len(sampled)]
        fitting = await asyncio.to_thread(self._fitting, before) if self._conditional else None
        candidates = self._in_order if fitting is None else (fitting, *self._in_order)
        begun = next((turn for turn in candidates if turn.begins_with(sampled)), None)
        return begun or await self._choose(prompt)

    async def _choose(self, prompt: Sequence[int]) -> _PreparedTurn:
        if self._conditional:
            turn = await asyncio.to_thread(self._fitting, prompt)  # a search may take its whole time limit
            if turn is not None:
                return turn
        if not self._in_order:
            raise EngineFailed(
                'No "when" of the script matches this prompt, and the script has no turn without "when". '
                "Add one as the answer to every other prompt."
            )
        count = len(self._in_order)
        at = self._served % count if self._script.loop else min(self._served, count - 1)
        self._served += 1
        return self._in_order[at]

    def _fitting(self, prompt: Sequence[int]) -> _PreparedTurn | None:
        text = _decode(prompt)
        for turn in self._conditional:
            if turn.source.when is not None and turn.source.when.fits(text):
                return turn
        return None

    async def _due(self, began: float, sent: int, count: int) -> int:
        """Where the next step ends; with a rate, waits until at least one more token is due."""
        rate = self._script.tokens_per_second
        if rate == 0 or count == 0:
            return min(sent + TOKENS_PER_STEP, count)
        clock = asyncio.get_running_loop().time
        if (seconds := began + (sent + 1) / rate - clock()) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), seconds)
        self._check_open()
        # At least one: the wait may end a clock tick early.
        due = max(int((clock() - began) * rate), sent + 1)
        return min(sent + TOKENS_PER_STEP, due, count)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise EngineClosed("The scripted engine was closed.")


@dataclass(frozen=True)
class _PreparedTurn:
    source: ScriptedTurn

    @cached_property
    def tokens(self) -> tuple[int, ...]:
        """Encoded once."""
        if self.source.tokens is not None:
            return self.source.tokens
        return tuple(_encoding().encode(self.source.text, allowed_special="all"))

    def begins_with(self, tokens: tuple[int, ...]) -> bool:
        return self.tokens[: len(tokens)] == tokens

    @cached_property
    def distinct(self) -> frozenset[int]:
        return frozenset(self.tokens)


def load(model: str, options: EngineOptions, progress: bool | None) -> Engine:
    path, context = model.removeprefix("scripted:"), options.context or CONTEXT_LENGTH
    if not path.strip():
        raise ModelNotFound("'scripted:' lacks a path. Add the path of a JSON file: scripted:script.json.")
    if context > CONTEXT_LENGTH:
        raise CheckpointError(
            f"The requested context is {context} tokens; a scripted engine has at most {CONTEXT_LENGTH}."
        )
    file = expanded_path(path, "file", ModelNotFound)
    engine = ScriptedEngine(read_script(file, VOCAB_SIZE), context=context)
    engine.prepare()
    return engine


def _cut(turn: _PreparedTurn, limit: int, stop_ids: frozenset[int]) -> tuple[tuple[int, ...], Finish]:
    """The tokens of a turn up to its first stop id, or to the limit, or all of them."""
    tokens = turn.tokens
    if not turn.distinct.isdisjoint(stop_ids):
        stop = next(at for at, token in enumerate(tokens) if token in stop_ids)
        if stop < limit:
            return tokens[: stop + 1], Finish.STOP
    # Exactly at the limit the turn has no end token yet, as with any engine.
    if limit <= len(tokens):
        return tokens[:limit], Finish.LENGTH
    return tokens, Finish.STOP


def _logprobs(tokens: tuple[int, ...], sampling: Sampling) -> tuple[TokenLogprob, ...] | None:
    if sampling.logprobs is None:
        return None
    return tuple(TokenLogprob(token, 0.0, ((token, 0.0),)[: sampling.logprobs]) for token in tokens)


@cache
def _encoding() -> Any:
    """The vocabulary, loaded once: 0.3 s each time."""
    import openai_harmony  # type: ignore[import-untyped, unused-ignore]

    return openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)


def _decode(tokens: Sequence[int]) -> str:
    """The prompt as text, with special tokens spelt out; an id without text becomes U+FFFD."""
    import openai_harmony

    try:
        return str(_encoding().decode(list(tokens), errors="replace"))
    except (openai_harmony.HarmonyError, OverflowError):
        if len(tokens) == 1:
            return "\N{REPLACEMENT CHARACTER}"
        return "".join(_decode([token]) for token in tokens)
