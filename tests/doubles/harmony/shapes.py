"""Shapes of completions, legal and slipped: one table for the tests of the decoder and the renderer."""

from __future__ import annotations

from dataclasses import dataclass

from gpt_oss_server.harmony.decoder import Recipients

DECLARED = Recipients(
    functions=frozenset({"f", "get_weather"}),
    builtin=frozenset({"browser.search", "browser.open", "browser.find", "python"}),
)

Message = tuple[str, str | None, str | None, str, str]  # channel, recipient, content type, text, closed by


@dataclass(frozen=True)
class Shape:
    """`completion` is text that spells special tokens; `slips` are the kinds that the decoder reports."""

    name: str
    completion: str
    messages: tuple[Message, ...]
    slips: tuple[str, ...] = ()


def final(text: str, closed_by: str = "return") -> Message:
    return ("final", None, None, text, closed_by)


def call(
    text: str, recipient: str | None = "functions.f", closed_by: str = "call", **more: str | None
) -> Message:
    return (more.get("channel") or "commentary", recipient, more.get("of", "json"), text, closed_by)


LEGAL = (
    Shape("an answer", "<|channel|>final<|message|>Hi there!<|return|>", (final("Hi there!"),)),
    Shape("an empty answer", "<|channel|>final<|message|><|return|>", (final(""),)),
    Shape(
        "characters of many tokens",
        "<|channel|>final<|message|>東京 🧠 ñ 👩‍👩‍👧<|return|>",
        (final("東京 🧠 ñ 👩‍👩‍👧"),),
    ),
    Shape(
        "reasoning, then an answer",
        "<|channel|>analysis<|message|>Hm.\n<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
        (("analysis", None, None, "Hm.\n", "end"), final("Yes.")),
    ),
    Shape(
        "a call, channel first",
        '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>',
        (call('{"a": 1}'),),
    ),
    Shape(
        "a call, recipient first",
        " to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>",
        (call("{}"),),
    ),
    Shape(
        "a call without constrain",
        "<|channel|>commentary to=functions.f json<|message|>{}<|call|>",
        (call("{}"),),
    ),
    Shape(
        "a call without a type",
        "<|channel|>commentary to=functions.f<|message|>{}<|call|>",
        (call("{}", of=None),),
    ),
    Shape(
        "the browser",
        '<|channel|>analysis to=browser.search code<|message|>{"query": "x"}<|call|>',
        (call('{"query": "x"}', "browser.search", channel="analysis", of="code"),),
    ),
    Shape(
        "python",
        "<|channel|>analysis to=python code<|message|>print(1)<|call|>",
        (call("print(1)", "python", channel="analysis", of="code"),),
    ),
    Shape(
        "python on commentary",
        "<|channel|>commentary to=python code<|message|>print(1)<|call|>",
        (call("print(1)", "python", of="code"),),
    ),
    Shape(
        "a preamble, then a call",
        "<|channel|>commentary<|message|>I will look.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.f json<|message|>{}<|call|>",
        (("commentary", None, None, "I will look.", "end"), call("{}")),
    ),
    Shape(
        "two calls, recipient first in the second",
        "<|channel|>commentary to=functions.f json<|message|>{}<|call|>"
        "<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>[]<|call|>",
        (call("{}"), call("[]", "functions.get_weather")),
    ),
    Shape(
        "an answer in JSON",
        "<|channel|>final <|constrain|>json<|message|>{}<|return|>",
        (("final", None, "json", "{}", "return"),),
    ),
    Shape(
        "a constrain with no space before it",
        "<|channel|>commentary to=functions.f<|constrain|>json<|message|>{}<|call|>",
        (call("{}"),),
    ),
)
