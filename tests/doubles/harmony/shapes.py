"""Shapes of completions, legal and slipped: one table for the tests of the decoder and the renderer."""

from __future__ import annotations

from dataclasses import dataclass

from gpt_oss_server.harmony.recipients import Recipients

DECLARED = Recipients(
    functions=frozenset({"f", "get_weather"}),
    builtin=frozenset({"browser.search", "browser.open", "browser.find", "python"}),
)

Message = tuple[str, str | None, str | None, str, str]  # channel, recipient, content type, text, closed by


@dataclass(frozen=True)
class Shape:
    """`completion` is text that spells special tokens; `slips` are the kinds that the decoder reports."""

    name: str
    slips: tuple[str, ...]
    completion: str
    messages: tuple[Message, ...]


def _shape(name: str, slips: str, completion: str, *messages: Message) -> Shape:
    return Shape(name, tuple(slips.split()), completion, messages)


def final(text: str, closed_by: str = "return") -> Message:
    return ("final", None, None, text, closed_by)


def call(
    text: str, recipient: str | None = "functions.f", closed_by: str = "call", **more: str | None
) -> Message:
    return (more.get("channel") or "commentary", recipient, more.get("of", "json"), text, closed_by)


START = "<|start|>assistant"
X, THOUGHT = "<|channel|>analysis<|message|>x<|end|>", ("analysis", None, None, "x", "end")

# fmt: off
LEGAL = (
    _shape("an answer", "", "<|channel|>final<|message|>Hi there!<|return|>", final("Hi there!")),
    _shape("an empty answer", "", "<|channel|>final<|message|><|return|>", final("")),
    _shape("characters of many tokens", "",
           "<|channel|>final<|message|>東京 🧠 ñ 👩‍👩‍👧<|return|>",
           final("東京 🧠 ñ 👩‍👩‍👧")),
    _shape("reasoning, then an answer", "",
           f"<|channel|>analysis<|message|>Hm.\n<|end|>{START}<|channel|>final<|message|>Yes.<|return|>",
           ("analysis", None, None, "Hm.\n", "end"), final("Yes.")),
    _shape("a call, channel first", "",
           '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>',
           call('{"a": 1}')),
    _shape("a call, recipient first", "",
           " to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>", call("{}")),
    _shape("a call without constrain", "",
           "<|channel|>commentary to=functions.f json<|message|>{}<|call|>", call("{}")),
    _shape("a call without a type", "",
           "<|channel|>commentary to=functions.f<|message|>{}<|call|>", call("{}", of=None)),
    _shape("the browser", "",
           '<|channel|>analysis to=browser.search code<|message|>{"query": "x"}<|call|>',
           call('{"query": "x"}', "browser.search", channel="analysis", of="code")),
    _shape("python", "",
           "<|channel|>analysis to=python code<|message|>print(1)<|call|>",
           call("print(1)", "python", channel="analysis", of="code")),
    _shape("python on commentary", "",
           "<|channel|>commentary to=python code<|message|>print(1)<|call|>",
           call("print(1)", "python", of="code")),
    _shape("a preamble, then a call", "",
           f"<|channel|>commentary<|message|>I will look.<|end|>{START}"
           "<|channel|>commentary to=functions.f json<|message|>{}<|call|>",
           ("commentary", None, None, "I will look.", "end"), call("{}")),
    _shape("two calls, recipient first in the second", "",
           "<|channel|>commentary to=functions.f json<|message|>{}<|call|>"
           f"{START} to=functions.get_weather<|channel|>commentary json<|message|>[]<|call|>",
           call("{}"), call("[]", "functions.get_weather")),
    _shape("an answer in JSON", "",
           "<|channel|>final <|constrain|>json<|message|>{}<|return|>",
           ("final", None, "json", "{}", "return")),
    _shape("a constrain with no space before it", "",
           "<|channel|>commentary to=functions.f<|constrain|>json<|message|>{}<|call|>", call("{}")),
)

_SLIPPED = (
    # doubled and glued marks
    _shape("a doubled channel mark", "doubled_channel",
           "<|channel|><|channel|>final<|message|>x<|return|>", final("x")),
    _shape("two channels", "doubled_channel",
           "<|channel|>analysis<|channel|>final<|message|>x<|return|>", final("x")),
    _shape("channel and recipient glued", "odd_spacing",
           "<|channel|>commentaryto=functions.f json<|message|>{}<|call|>", call("{}")),
    _shape("type and recipient glued", "odd_spacing",
           "<|channel|>commentary <|constrain|>jsonto=functions.f<|message|>{}<|call|>", call("{}")),
    _shape("role and recipient glued", "doubled_start odd_spacing",
           "<|start|>assistantto=functions.f<|channel|>commentary json<|message|>{}<|call|>", call("{}")),
    # strays
    _shape("a stray return", "stray_token", f"{X}<|return|>", THOUGHT),
    _shape("stray ends", "stray_token stray_token",
           f"{X}<|end|><|end|>{START}<|channel|>final<|message|>y<|return|>", THOUGHT, final("y")),
    _shape("a stray start", "cut_header", f"{X}<|start|>", THOUGHT),
    _shape("a doubled start", "doubled_start",
           f"{X}<|start|>{START}<|channel|>final<|message|>y<|return|>", THOUGHT, final("y")),
    _shape("a start of its own", "doubled_start",
           f"{START}<|channel|>final<|message|>y<|return|>", final("y")),
    _shape("only a return", "stop_in_header", "<|return|>"),
    _shape("nothing", "", ""),
    _shape("tokens after the end", "after_stop",
           f"<|channel|>final<|message|>x<|return|>{START}<|channel|>final<|message|>y<|return|>",
           final("x"), final("y")),
    _shape("text after the end", "missing_start after_stop no_header",
           "<|channel|>final<|message|>x<|return|>and more of it<|return|>",
           final("x"), final("and more of it")),
    _shape("the end of text", "", "<|channel|>final<|message|>x<|endoftext|>", final("x")),
    _shape("a message without start", "missing_start",
           f"{X}<|channel|>final<|message|>y<|return|>", THOUGHT, final("y")),
    _shape("a message token alone", "missing_start no_channel",
           f"{X}<|message|>y<|return|>", THOUGHT, final("y")),
    _shape("a role without start", "missing_start leftover_words",
           f"{X}assistant<|channel|>final<|message|>y<|return|>", THOUGHT, final("y")),
    _shape("a start in a text", "missing_end",
           f"<|channel|>analysis<|message|>x{START}<|channel|>final<|message|>y<|return|>",
           ("analysis", None, None, "x", "start"), final("y")),
    _shape("a channel in a text", "missing_end",
           "<|channel|>analysis<|message|>x<|channel|>final<|message|>y<|return|>",
           ("analysis", None, None, "x", "start"), final("y")),
    _shape("strays in a text", "stray_token stray_token",
           "<|channel|>final<|message|>a<|message|>b<|constrain|>c<|return|>", final("abc")),
    _shape("a reserved token", "reserved_token reserved_token",
           "<|channel|>final<|message|>a<|reserved_200013|>b<|startoftext|><|return|>", final("ab")),
    # no header
    _shape("a bare refusal", "no_header",
           "I'm sorry, but I can't help with that.<|return|>",
           final("I'm sorry, but I can't help with that.")),
    _shape("a short bare refusal", "no_header", "No.<|return|>", final("No.")),
    _shape("a bare text with white space", "no_header", "  No\n\n way <|return|>", final("  No\n\n way ")),
    _shape("a bare text cut short", "no_header", "No", final("No", "truncated")),
    _shape("a bare text after a role", "no_header",
           f"{X}{START} I cannot do that for you.<|return|>", THOUGHT, final("I cannot do that for you.")),
    _shape("an answer without message token", "no_message_token",
           "<|channel|>final Hello there<|return|>", final("Hello there")),
    _shape("a call without message token", "no_message_token",
           '<|channel|>commentary to=functions.f json{"a": 1}<|call|>', call('{"a": 1}')),
    _shape("a constrained call without message token", "no_message_token",
           '<|channel|>commentary to=functions.f <|constrain|>json{"a": 1}<|call|>', call('{"a": 1}')),
    # a stop token in a header
    _shape("an end after the channel", "stop_in_header",
           "<|channel|>analysis<|end|>", ("analysis", None, None, "", "end")),
    _shape("a call after the recipient", "stop_in_header",
           "<|channel|>commentary to=functions.f<|call|>", call("", of=None)),
    _shape("an end after the role", "stop_in_header", f"{X}{START}<|return|>", THOUGHT),
    _shape("a start after the channel", "stop_in_header",
           f"<|channel|>analysis{START}<|channel|>final<|message|>y<|return|>",
           ("analysis", None, None, "", "start"), final("y")),
    # channels
    _shape("a channel with a question mark", "unknown_channel",
           "<|channel|>commentary?<|message|>x<|end|>", ("commentary", None, None, "x", "end")),
    _shape("half a channel", "unknown_channel",
           "<|channel|>comment<|message|>x<|end|>", ("commentary", None, None, "x", "end")),
    _shape("an unknown channel", "unknown_channel", "<|channel|>poetry<|message|>x<|return|>", final("x")),
    _shape("an unknown channel of a call", "unknown_channel",
           "<|channel|>poetry to=functions.f json<|message|>{}<|call|>", call("{}")),
    _shape("an empty channel", "no_channel", "<|channel|><|message|>x<|return|>", final("x")),
    _shape("an empty channel of a call", "no_channel",
           "<|channel|> to=functions.f json<|message|>{}<|call|>", call("{}")),
    _shape("no channel", "no_channel", "<|message|>x<|return|>", final("x")),
    _shape("no channel of a call", "no_channel",
           " to=functions.f <|constrain|>json<|message|>{}<|call|>", call("{}")),
    _shape("a channel without its mark", "no_channel",
           f"{X}{START} final<|message|>y<|return|>", THOUGHT, final("y")),
    # recipients
    _shape("a doubled recipient", "doubled_recipient",
           " to=functions.f<|channel|>commentary to=functions.f json<|message|>{}<|call|>", call("{}")),
    _shape("a doubled to", "doubled_recipient",
           "<|channel|>commentary to=to=functions.f json<|message|>{}<|call|>", call("{}")),
    _shape("a spaced to", "odd_spacing",
           "<|channel|>commentary to = functions.f json<|message|>{}<|call|>", call("{}")),
    _shape("a bare name", "bare_recipient",
           "<|channel|>commentary to=f json<|message|>{}<|call|>", call("{}")),
    _shape("no to", "bare_recipient",
           "<|channel|>commentary functions.f json<|message|>{}<|call|>", call("{}")),
    _shape("a recipient in the place of the type", "bare_recipient",
           "<|channel|>commentary <|constrain|>functions.f<|message|>{}<|call|>", call("{}", of=None)),
    _shape("a recipient before the type, after its mark", "bare_recipient",
           "<|channel|>commentary<|constrain|>functions.f json<|message|>{}<|call|>", call("{}")),
    _shape("python without to", "bare_recipient",
           "<|channel|>commentary python<|message|>1<|call|>", call("1", "python", of=None)),
    _shape("functions.browser", "misplaced_recipient",
           "<|channel|>commentary to=functions.browser.search json<|message|>{}<|call|>",
           call("{}", "browser.search")),
    _shape("functions.python", "misplaced_recipient",
           "<|channel|>commentary to=functions.python json<|message|>{}<|call|>", call("{}", "python")),
    _shape("a bare browser function", "bare_recipient",
           "<|channel|>commentary to=search json<|message|>{}<|call|>", call("{}", "browser.search")),
    _shape("an undeclared function", "undeclared_recipient",
           "<|channel|>commentary to=functions.zzz json<|message|>{}<|call|>", call("{}", "functions.zzz")),
    _shape("an undeclared namespace", "undeclared_recipient",
           "<|channel|>commentary to=container.exec json<|message|>{}<|call|>", call("{}", "container.exec")),
    _shape("an unknown function of a namespace", "undeclared_recipient",
           "<|channel|>analysis to=browser.zoom code<|message|>{}<|call|>",
           call("{}", "browser.zoom", channel="analysis", of="code")),
    _shape("to the user", "no_tool", "<|channel|>final to=user<|message|>x<|return|>", final("x")),
    _shape("to all", "no_tool",
           "<|channel|>commentary to=all<|message|>x<|end|>", ("commentary", None, None, "x", "end")),
    _shape("a call on analysis", "call_channel",
           "<|channel|>analysis to=functions.f json<|message|>{}<|call|>", call("{}", channel="analysis")),
    _shape("a call on final", "call_channel",
           "<|channel|>final to=functions.f json<|message|>{}<|call|>", call("{}")),
    _shape("a call that returns", "call_end",
           "<|channel|>commentary to=functions.f json<|message|>{}<|return|>",
           call("{}", closed_by="return")),
    _shape("a call that ends", "call_end",
           "<|channel|>commentary to=functions.f json<|message|>{}<|end|>", call("{}", closed_by="end")),
    _shape("an answer that calls", "call_end", "<|channel|>final<|message|>x<|call|>", final("x", "call")),
    # bodies, leftovers, ends in the middle
    _shape("broken JSON", "invalid_json",
           '<|channel|>commentary to=functions.f json<|message|>{"a": <|call|>', call('{"a": ')),
    _shape("leftover words", "leftover_words",
           "<|channel|>commentary to=functions.f json odd words<|message|>{}<|call|>", call("{}")),
    _shape("two types", "leftover_words",
           "<|channel|>commentary to=functions.f code <|constrain|>json<|message|>{}<|call|>", call("{}")),
    _shape("cut in the channel", "cut_header", "<|channel|>anal"),
    _shape("cut in the recipient", "cut_header", " to=func"),
    _shape("cut before the recipient", "cut_header", "<|channel|>commentary to"),
    _shape("cut in the type", "cut_header", "<|channel|>commentary to=functions.f js"),
    _shape("cut after a word of text", "no_message_token",
           "<|channel|>final Hello", final("Hello", "truncated")),
    _shape("cut in the second header", "cut_header", f"{X}{START}<|channel|>fin", THOUGHT),
    _shape("cut in the text", "", "<|channel|>final<|message|>Hel", final("Hel", "truncated")),
    _shape("cut in the arguments", "",
           '<|channel|>commentary to=functions.f json<|message|>{"a', call('{"a', closed_by="truncated")),
    # foreign roles
    _shape("a user", "foreign_role", f"{X}<|start|>user<|message|>Hi<|end|>", THOUGHT, final("Hi", "end")),
    _shape("a tool result", "foreign_role",
           f"{X}<|start|>functions.f to=assistant<|channel|>commentary<|message|>4<|end|>",
           THOUGHT, ("commentary", None, None, "4", "end")),
    _shape("no role", "foreign_role",
           f"{X}<|start|><|channel|>final<|message|>y<|return|>", THOUGHT, final("y")),
)
# fmt: on

SHAPES = LEGAL + _SLIPPED
