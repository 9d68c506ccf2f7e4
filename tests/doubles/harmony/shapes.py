"""Shapes of completions, legal and slipped: one table for the tests of the decoder and the renderer.

Letters stand for special tokens; `[a]` begins a message of the assistant, `[f]` names the function f, and
`[x]` is a thought, whose message the row leaves out.
"""

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


# fmt: off
_TOKENS = {
    "[a]": "<|start|>assistant", "[s]": "<|start|>", "[c]": "<|channel|>", "[m]": "<|message|>",
    "[e]": "<|end|>", "[r]": "<|return|>", "[k]": "<|call|>", "[t]": "<|constrain|>",
    "[f]": " to=functions.f",
}
# fmt: on
_THOUGHT = ("analysis", None, None, "x", "end")


def _shape(name: str, slips: str, completion: str, *messages: Message) -> Shape:
    if completion.startswith("[x]"):
        completion, messages = completion.replace("[x]", "[c]analysis[m]x[e]"), (_THOUGHT, *messages)
    for letter, token in _TOKENS.items():
        completion = completion.replace(letter, token)
    return Shape(name, tuple(slips.split()), completion, messages)


def final(text: str, closed_by: str = "return") -> Message:
    return ("final", None, None, text, closed_by)


def call(text: str, recipient: str = "functions.f", closed_by: str = "call", **more: str | None) -> Message:
    return (more.get("channel") or "commentary", recipient, more.get("of", "json"), text, closed_by)


# fmt: off
_LEGAL: tuple[tuple[str, str, str, *tuple[Message, ...]], ...] = (
    ("an answer", "", "[c]final[m]Hi there![r]", final("Hi there!")),
    ("an empty answer", "", "[c]final[m][r]", final("")),
    ("characters of many tokens", "", "[c]final[m]東京 🧠 ñ 👩‍👩‍👧[r]", final("東京 🧠 ñ 👩‍👩‍👧")),
    ("reasoning, then an answer", "", "[c]analysis[m]Hm.\n[e][a][c]final[m]Yes.[r]",
     ("analysis", None, None, "Hm.\n", "end"), final("Yes.")),
    ("a call, channel first", "", '[c]commentary[f] [t]json[m]{"a": 1}[k]', call('{"a": 1}')),
    ("a call, recipient first", "", "[f][c]commentary [t]json[m]{}[k]", call("{}")),
    ("a call without constrain", "", "[c]commentary[f] json[m]{}[k]", call("{}")),
    ("a call without a type", "", "[c]commentary[f][m]{}[k]", call("{}", of=None)),
    ("the browser", "", '[c]analysis to=browser.search code[m]{"query": "x"}[k]',
     call('{"query": "x"}', "browser.search", channel="analysis", of="code")),
    ("python", "", "[c]analysis to=python code[m]print(1)[k]",
     call("print(1)", "python", channel="analysis", of="code")),
    ("python on commentary", "", "[c]commentary to=python code[m]print(1)[k]",
     call("print(1)", "python", of="code")),
    ("a preamble, then a call", "", "[c]commentary[m]I will look.[e][a][c]commentary[f] json[m]{}[k]",
     ("commentary", None, None, "I will look.", "end"), call("{}")),
    ("two calls, recipient first in the second", "",
     "[c]commentary[f] json[m]{}[k][a] to=functions.get_weather[c]commentary json[m][][k]", call("{}"),
     call("[]", "functions.get_weather")),
    ("an answer in JSON", "", "[c]final [t]json[m]{}[r]", ("final", None, "json", "{}", "return")),
    ("a constrain with no space before it", "", "[c]commentary[f][t]json[m]{}[k]", call("{}")),
)

_SLIPPED: tuple[tuple[str, str, str, *tuple[Message, ...]], ...] = (
    # doubled and glued marks
    ("a doubled channel mark", "doubled_channel", "[c][c]final[m]x[r]", final("x")),
    ("two channels", "doubled_channel", "[c]analysis[c]final[m]x[r]", final("x")),
    ("channel and recipient glued", "odd_spacing", "[c]commentaryto=functions.f json[m]{}[k]", call("{}")),
    ("type and recipient glued", "odd_spacing", "[c]commentary [t]jsonto=functions.f[m]{}[k]", call("{}")),
    ("role and recipient glued", "doubled_start odd_spacing", "[a]to=functions.f[c]commentary json[m]{}[k]",
     call("{}")),
    # strays
    ("a stray return", "stray_token", "[x][r]"),
    ("stray ends", "stray_token stray_token", "[x][e][e][a][c]final[m]y[r]", final("y")),
    ("a stray start", "cut_header", "[x][s]"),
    ("a doubled start", "doubled_start", "[x][s][a][c]final[m]y[r]", final("y")),
    ("a start of its own", "doubled_start", "[a][c]final[m]y[r]", final("y")),
    ("only a return", "stop_in_header", "[r]"),
    ("nothing", "", ""),
    ("tokens after the end", "after_stop", "[c]final[m]x[r][a][c]final[m]y[r]", final("x"), final("y")),
    ("text after the end", "missing_start after_stop no_header", "[c]final[m]x[r]and more of it[r]",
     final("x"), final("and more of it")),
    ("the end of text", "", "[c]final[m]x<|endoftext|>", final("x")),
    ("a message without start", "missing_start", "[x][c]final[m]y[r]", final("y")),
    ("a message token alone", "missing_start no_channel", "[x][m]y[r]", final("y")),
    ("a role without start", "missing_start leftover_words", "[x]assistant[c]final[m]y[r]", final("y")),
    ("a start in a text", "missing_end", "[c]analysis[m]x[a][c]final[m]y[r]",
     ("analysis", None, None, "x", "start"), final("y")),
    ("a channel in a text", "missing_end", "[c]analysis[m]x[c]final[m]y[r]",
     ("analysis", None, None, "x", "start"), final("y")),
    ("strays in a text", "stray_token stray_token", "[c]final[m]a[m]b[t]c[r]", final("abc")),
    ("a reserved token", "reserved_token reserved_token",
     "[c]final[m]a<|reserved_200013|>b<|startoftext|>[r]", final("ab")),
    # no header
    ("a bare refusal", "no_header", "I'm sorry, but I can't help with that.[r]",
     final("I'm sorry, but I can't help with that.")),
    ("a short bare refusal", "no_header", "No.[r]", final("No.")),
    ("a bare text with white space", "no_header", "  No\n\n way [r]", final("  No\n\n way ")),
    ("a bare text cut short", "no_header", "No", final("No", "truncated")),
    ("a bare text after a role", "no_header", "[x][a] I cannot do that for you.[r]",
     final("I cannot do that for you.")),
    ("an answer without message token", "no_message_token", "[c]final Hello there[r]", final("Hello there")),
    ("a call without message token", "no_message_token", '[c]commentary[f] json{"a": 1}[k]',
     call('{"a": 1}')),
    ("a constrained call without message token", "no_message_token", '[c]commentary[f] [t]json{"a": 1}[k]',
     call('{"a": 1}')),
    # a stop token in a header
    ("an end after the channel", "stop_in_header", "[c]analysis[e]", ("analysis", None, None, "", "end")),
    ("a call after the recipient", "stop_in_header", "[c]commentary[f][k]", call("", of=None)),
    ("an end after the role", "stop_in_header", "[x][a][r]"),
    ("a start after the channel", "stop_in_header", "[c]analysis[a][c]final[m]y[r]",
     ("analysis", None, None, "", "start"), final("y")),
    # channels
    ("a channel with a question mark", "unknown_channel", "[c]commentary?[m]x[e]",
     ("commentary", None, None, "x", "end")),
    ("half a channel", "unknown_channel", "[c]comment[m]x[e]", ("commentary", None, None, "x", "end")),
    ("an unknown channel", "unknown_channel", "[c]poetry[m]x[r]", final("x")),
    ("an unknown channel of a call", "unknown_channel", "[c]poetry[f] json[m]{}[k]", call("{}")),
    ("an empty channel", "no_channel", "[c][m]x[r]", final("x")),
    ("an empty channel of a call", "no_channel", "[c][f] json[m]{}[k]", call("{}")),
    ("no channel", "no_channel", "[m]x[r]", final("x")),
    ("no channel of a call", "no_channel", "[f] [t]json[m]{}[k]", call("{}")),
    ("a channel without its mark", "no_channel", "[x][a] final[m]y[r]", final("y")),
    # recipients
    ("a doubled recipient", "doubled_recipient", "[f][c]commentary[f] json[m]{}[k]", call("{}")),
    ("a doubled to", "doubled_recipient", "[c]commentary to=to=functions.f json[m]{}[k]", call("{}")),
    ("a spaced to", "odd_spacing", "[c]commentary to = functions.f json[m]{}[k]", call("{}")),
    ("a bare name", "bare_recipient", "[c]commentary to=f json[m]{}[k]", call("{}")),
    ("no to", "bare_recipient", "[c]commentary functions.f json[m]{}[k]", call("{}")),
    ("a recipient in the place of the type", "bare_recipient", "[c]commentary [t]functions.f[m]{}[k]",
     call("{}", of=None)),
    ("a recipient before the type, after its mark", "bare_recipient",
     "[c]commentary[t]functions.f json[m]{}[k]", call("{}")),
    ("python without to", "bare_recipient", "[c]commentary python[m]1[k]", call("1", "python", of=None)),
    ("functions.browser", "misplaced_recipient", "[c]commentary to=functions.browser.search json[m]{}[k]",
     call("{}", "browser.search")),
    ("functions.python", "misplaced_recipient", "[c]commentary to=functions.python json[m]{}[k]",
     call("{}", "python")),
    ("a glued type", "glued_type", "[c]commentary to=functions.fjson[m]{}[k]", call("{}", of=None)),
    ("a glued code", "glued_type", "[c]analysis to=pythoncode[m]1[k]",
     call("1", "python", channel="analysis", of=None)),
    ("a bare browser function", "bare_recipient", "[c]commentary to=search json[m]{}[k]",
     call("{}", "browser.search")),
    ("an undeclared function", "undeclared_recipient", "[c]commentary to=functions.zzz json[m]{}[k]",
     call("{}", "functions.zzz")),
    ("an undeclared namespace", "undeclared_recipient", "[c]commentary to=container.exec json[m]{}[k]",
     call("{}", "container.exec")),
    ("an unknown function of a namespace", "undeclared_recipient", "[c]analysis to=browser.zoom code[m]{}[k]",
     call("{}", "browser.zoom", channel="analysis", of="code")),
    ("to the user", "no_tool", "[c]final to=user[m]x[r]", final("x")),
    ("to all", "no_tool", "[c]commentary to=all[m]x[e]", ("commentary", None, None, "x", "end")),
    ("a call on analysis", "call_channel", "[c]analysis[f] json[m]{}[k]", call("{}", channel="analysis")),
    ("a call on final", "call_channel", "[c]final[f] json[m]{}[k]", call("{}")),
    ("a call that returns", "call_end", "[c]commentary[f] json[m]{}[r]", call("{}", closed_by="return")),
    ("a call that ends", "call_end", "[c]commentary[f] json[m]{}[e]", call("{}", closed_by="end")),
    ("an answer that calls", "call_end", "[c]final[m]x[k]", final("x", "call")),
    # bodies, leftovers, ends in the middle
    ("broken JSON", "invalid_json", '[c]commentary[f] json[m]{"a": [k]', call('{"a": ')),
    ("leftover words", "leftover_words", "[c]commentary[f] json odd words[m]{}[k]", call("{}")),
    ("two types", "leftover_words", "[c]commentary[f] code [t]json[m]{}[k]", call("{}")),
    ("cut in the channel", "cut_header", "[c]anal"),
    ("cut in the recipient", "cut_header", " to=func"),
    ("cut before the recipient", "cut_header", "[c]commentary to"),
    ("cut in the type", "cut_header", "[c]commentary[f] js"),
    ("cut after a word of text", "no_message_token", "[c]final Hello", final("Hello", "truncated")),
    ("cut in the second header", "cut_header", "[x][a][c]fin"),
    ("cut in the text", "", "[c]final[m]Hel", final("Hel", "truncated")),
    ("cut in the arguments", "", '[c]commentary[f] json[m]{"a', call('{"a', closed_by="truncated")),
    # foreign roles
    ("a user", "foreign_role", "[x][s]user[m]Hi[e]", final("Hi", "end")),
    ("a tool result", "foreign_role", "[x][s]functions.f to=assistant[c]commentary[m]4[e]",
     ("commentary", None, None, "4", "end")),
    ("no role", "foreign_role", "[x][s][c]final[m]y[r]", final("y")),
)
# fmt: on

LEGAL = tuple(_shape(*row) for row in _LEGAL)
SHAPES = (*LEGAL, *(_shape(*row) for row in _SLIPPED))
