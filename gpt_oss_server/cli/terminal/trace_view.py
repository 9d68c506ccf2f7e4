"""A trace as lines for a terminal: prompts, completions token by token, slips, tools, the library's reading.

It may come from any machine, so no text in it reaches the terminal with control characters.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

from gpt_oss_server.cli.terminal.console import BOLD, CYAN, DIM, GREEN, RED, styled, visible
from gpt_oss_server.cli.terminal.token_text import is_special

_CHANNELS = {"analysis": DIM, "final": GREEN, "commentary": "33"}


def trace_lines(trace: dict[str, Any], *, colour: bool, tokens: bool) -> Iterator[str]:
    view = _View(trace["vocabulary"], colour, tokens)
    server, engine = trace["server"], trace["engine"]
    yield f"gpt-oss-server {server['gpt_oss_server']}, {server['harmony']}, model {visible(engine['name'])}"
    for response in trace["responses"]:
        yield from view.response(response)


class _View:
    def __init__(self, vocabulary: dict[str, Any], colour: bool, tokens: bool) -> None:
        self._vocabulary = vocabulary
        self._colour = colour
        self._tokens = tokens

    def response(self, response: dict[str, Any]) -> Iterator[str]:
        final = response["response"]
        yield ""
        yield self._styled(f"{final.get('id')}  {final.get('status')}", BOLD)
        yield from self._text("prompt", response["prompt"])
        for number, generation in enumerate(response["generations"]):
            yield from self._tools(response, number)
            if generation["given"] and number:
                yield from self._text("given", generation["given"])
            yield from self._generation(number, generation)
        yield from self._tools(response, len(response["generations"]))
        for warning in response["warnings"]:
            yield self._styled(f"! {warning['kind']}: {visible(warning['detail'])}", RED)

    def _generation(self, number: int, generation: dict[str, Any]) -> Iterator[str]:
        cached = f", {generation['cached']} of its prompt cached" if generation["cached"] else ""
        yield self._styled(f"completion {number + 1}, {len(generation['tokens'])} tokens{cached}", BOLD)
        slips: dict[int, list[Any]] = {}
        for slip in generation["slips"]:
            slips.setdefault(slip["at"], []).append(slip)
        if self._tokens:
            yield from self._each_token(generation, slips)
        else:
            yield visible(self._join(generation["tokens"]))
            for at in sorted(slips):
                yield from map(self._slip, slips[at])
        yield from self._readings(generation)

    def _each_token(self, generation: dict[str, Any], slips: dict[int, list[Any]]) -> Iterator[str]:
        scores = generation["logprobs"]
        channels = [(message["end"], message["channel"]) for message in generation["messages"]]
        for at, token in enumerate(generation["tokens"]):
            chance = "" if not scores or scores[at] is None else f"  {math.exp(scores[at]):7.2%}"
            channel = next((name for end, name in channels if at < end), None)
            code = CYAN if is_special(token) else _CHANNELS.get(channel or "", "")
            yield f"{token:>8}{chance}  {self._styled(self._shown(token), code)}"
            yield from map(self._slip, slips.get(at, []))

    def _readings(self, generation: dict[str, Any]) -> Iterator[str]:
        yield "  read as:"
        for message in generation["messages"]:
            yield "    " + self._message(message)
        library = generation["library"]
        if library["agrees"]:
            yield self._styled("  StreamableParser reads the same.", DIM)
            return
        yield self._styled("  StreamableParser reads otherwise:", RED)
        for message in library["messages"]:
            yield "    " + self._message(message)
        if library["error"]:
            stop = f"    it stops at token {library['stopped_at']}: {visible(library['error'])}"
            yield self._styled(stop, RED)

    def _message(self, message: dict[str, Any]) -> str:
        to = f" to={message['recipient']}" if message["recipient"] else ""
        head = visible(f"{message['channel']}{to}")
        return f"{head}: {json.dumps(message['text'], ensure_ascii=True)[:300]}"

    def _tools(self, response: dict[str, Any], generation: int) -> Iterator[str]:
        """The runs of tools before a generation, by its number."""
        for run in response["tools"]:
            if run["generation"] == generation:
                name = self._styled(f"tool {visible(run['recipient'])}", BOLD)
                output = json.dumps(run["output"])[:300]
                yield f"{name}, {run['ended'] - run['began']:.2f} s: {output}"

    def _slip(self, slip: dict[str, Any]) -> str:
        return self._styled(f"          ^ {slip['kind']}: {visible(slip['detail'])}", RED)

    def _text(self, title: str, tokens: list[int]) -> Iterator[str]:
        yield self._styled(f"{title}, {len(tokens)} tokens", BOLD)
        yield visible(self._join(tokens))

    def _join(self, tokens: list[int]) -> str:
        texts = (self._vocabulary.get(str(token), "\N{REPLACEMENT CHARACTER}") for token in tokens)
        pieces = (bytes(text) if isinstance(text, list) else str(text).encode() for text in texts)
        return b"".join(pieces).decode("utf-8", errors="replace")

    def _shown(self, token: int) -> str:
        text = self._vocabulary.get(str(token))
        if isinstance(text, str):
            return visible(text if is_special(token) else json.dumps(text, ensure_ascii=False))
        return repr(bytes(text or ()))

    def _styled(self, text: str, code: str) -> str:
        return styled(text, code, on=self._colour)
