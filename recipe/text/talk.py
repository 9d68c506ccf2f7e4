"""Writes conversations as tokens: prompts by the server's renderer, the model's turns with copied spans.

When the model copies, the target uses the tokens of the source: the same ones or, if the source has a leading
space and the target must not, the pieces of its first word. So every copy is a rule on tokens, and the model
never has to spell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import FunctionTool, Renderer, ResponseFormat, builtin_namespace
from recipe.text.vocabulary import SPACE, encode, ordinary_bytes, without_space

START, END, MESSAGE, CHANNEL, CALL, RETURN, CONSTRAIN = 200006, 200007, 200008, 200005, 200012, 200002, 200003
Effort = Literal["low", "medium", "high"]
Channel = Literal["analysis", "commentary", "final"]
Builtin = Literal["browser", "python"]
PAST = "past"  # the kind of a turn that is history
GOES_ON = "The user needs functions"  # begins a thought that continues the last call
_GAP = re.compile(r"\{(\w+)\}")


@cache
def renderer() -> Renderer:
    return Renderer(load_encoding())


@cache
def tokens_of(text: str) -> tuple[int, ...]:
    return tuple(encode(text))


@dataclass(frozen=True, slots=True)
class Value:
    """A text of the prompt; `bare` if a space precedes it there, and so in its tokens."""

    text: str
    bare: bool = True

    def spaced(self) -> list[int]:
        """Its tokens after a space."""
        return encode(" " + self.text) if self.bare else [SPACE, *self._after_a_quote()]

    def unspaced(self) -> list[int]:
        """Its tokens right after a quote, a dot or a colon."""
        if not self.bare:
            return self._after_a_quote()
        first, *rest = encode(" " + self.text)
        return [*without_space(first), *rest]

    def _after_a_quote(self) -> list[int]:
        """Its tokens after a quote: "/" and "etc" for a text that is the token "/etc" by itself."""
        quote = ' "'
        first, *rest = encode(quote + self.text)
        try:
            return [*encode(ordinary_bytes(first)[len(quote) :].decode()), *rest]
        except UnicodeDecodeError:  # the quote's token contains only a part of the next letter
            return encode(self.text)


def write(template: str, values: Mapping[str, Value]) -> list[int]:
    """The tokens of `template`, with its `{gaps}` filled from `values`."""
    out: list[int] = []
    place = 0
    for gap in _GAP.finditer(template):
        before = template[place : gap.start()]
        value = values[gap.group(1)]
        if before.endswith(" "):
            out += [*tokens_of(before[:-1]), *value.spaced()]
        else:
            out += [*tokens_of(before), *value.unspaced()]
        place = gap.end()
    return [*out, *tokens_of(template[place:])]


def plain(template: str, values: Mapping[str, Value]) -> str:
    return _GAP.sub(lambda gap: values[gap.group(1)].text, template)


def json_object(fields: Sequence[tuple[str, Value, bool]]) -> list[int]:
    """JSON of (name, value, is a string), with fixed tokens for its punctuation.

    One mark per token: the model finds a name's value while it writes them.
    """
    if not fields:
        return encode("{}")
    out = encode('{"')
    for place, (name, value, quoted) in enumerate(fields):
        last = place == len(fields) - 1
        out += [*encode(name), *encode('"'), *encode(":"), *encode(' "' if quoted else " ")]
        out += value.unspaced()
        if last:
            out += encode('"}' if quoted else "}")
        else:
            out += [*encode('",' if quoted else ","), *encode(' "')]
    return out


@dataclass(frozen=True, slots=True)
class Turn:
    """One generation: its place, and the texts that a checker expects in it."""

    start: int
    end: int
    must: tuple[str, ...] = ()  # texts that a final answer must contain
    kind: str = ""


@dataclass(slots=True)
class Talk:
    """A conversation under construction."""

    skill: str
    effort: Effort = "medium"
    tokens: list[int] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    # The declarations of the request.
    tools: Sequence[FunctionTool] = ()
    formats: Sequence[ResponseFormat] = ()
    builtin: Sequence[Builtin] = ()
    rules_end: int = 0  # text before this place only distracts: none of it is practised

    def add(self, *segments: Segment | None) -> None:
        for segment in segments:
            if segment is not None:
                self.tokens.extend(segment.tokens)

    def open(
        self,
        date: str | None,
        *,
        instructions: str | None = None,
        tools: Sequence[FunctionTool] = (),
        formats: Sequence[ResponseFormat] = (),
        builtin: Sequence[Builtin] = (),
    ) -> None:
        """Adds the system and developer messages, as the server renders them."""
        self.tools, self.formats, self.builtin = tools, formats, builtin
        make, encoding = renderer(), load_encoding()
        namespaces = [builtin_namespace(encoding, name) for name in builtin]
        self.add(
            make.system(effort=self.effort, date=date, builtin_tools=namespaces, function_tools=bool(tools)),
            make.developer(instructions=instructions, tools=tools, response_formats=formats),
        )

    def user(self, text: str) -> None:
        self.add(renderer().user(text))

    def turn(self, *messages: list[int], must: Sequence[str] = (), kind: str = "") -> None:
        """Adds a generation of one or more messages, each made by a function below."""
        start = len(self.tokens) + 2
        for message in messages:
            self.tokens += [START, *tokens_of("assistant"), *message]
        self.turns.append(Turn(start, len(self.tokens), tuple(must), kind))

    def past(self, tokens: list[int], *, practised: bool = True) -> None:
        """Adds a message of an earlier generation, whose reasoning the server has dropped.

        If `practised`, the model practises its content, but never its header: that follows reasoning, which
        is absent here.
        """
        self.tokens += [START, *tokens_of("assistant")]
        start = len(self.tokens) + tokens.index(MESSAGE) + 1
        self.tokens += [END if token == RETURN else token for token in tokens]
        if practised:
            self.turns.append(Turn(start, len(self.tokens), kind=PAST))


def message(channel: Channel, body: list[int], end: int = END) -> list[int]:
    return [CHANNEL, *tokens_of(channel), MESSAGE, *body, end]


def answer(body: list[int]) -> list[int]:
    return message("final", body, RETURN)


def function_call(name: Value, arguments: list[int]) -> list[int]:
    """A call of a function whose name follows a space in the prompt."""
    head = [CHANNEL, *tokens_of("commentary"), *tokens_of(" to=functions"), *tokens_of("."), *name.unspaced()]
    return [*head, *tokens_of(" "), CONSTRAIN, *tokens_of("json"), MESSAGE, *arguments, CALL]


def tool_call(recipient: str, code: list[int]) -> list[int]:
    """A call of a built-in tool, on the analysis channel."""
    head = [CHANNEL, *tokens_of("analysis"), *tokens_of(f" to={recipient}"), *tokens_of(" code")]
    return [*head, MESSAGE, *code, CALL]
