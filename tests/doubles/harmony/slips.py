"""The shapes that a model emits when it slips, with the decoder's result for each."""

from __future__ import annotations

from tests.doubles.harmony.shapes import LEGAL, Message, Shape, call, final

_ANALYSIS = "<|channel|>analysis<|message|>x<|end|>"
_X: Message = ("analysis", None, None, "x", "end")
_START = "<|start|>assistant"

SLIPPED = (
    # 1: doubled and glued marks
    Shape(
        "a doubled channel mark",
        "<|channel|><|channel|>final<|message|>x<|return|>",
        (final("x"),),
        ("doubled_channel",),
    ),
    Shape(
        "two channels",
        "<|channel|>analysis<|channel|>final<|message|>x<|return|>",
        (final("x"),),
        ("doubled_channel",),
    ),
    Shape(
        "channel and recipient glued",
        "<|channel|>commentaryto=functions.f json<|message|>{}<|call|>",
        (call("{}"),),
        ("odd_spacing",),
    ),
    Shape(
        "type and recipient glued",
        "<|channel|>commentary <|constrain|>jsonto=functions.f<|message|>{}<|call|>",
        (call("{}"),),
        ("odd_spacing",),
    ),
    Shape(
        "role and recipient glued",
        f"{_START}to=functions.f<|channel|>commentary json<|message|>{{}}<|call|>",
        (call("{}"),),
        ("doubled_start", "odd_spacing"),
    ),
    # 2: strays
    Shape("a stray return", f"{_ANALYSIS}<|return|>", (_X,), ("stray_token",)),
    Shape(
        "stray ends",
        f"{_ANALYSIS}<|end|><|end|>{_START}<|channel|>final<|message|>y<|return|>",
        (_X, final("y")),
        ("stray_token", "stray_token"),
    ),
    Shape("a stray start", f"{_ANALYSIS}<|start|>", (_X,), ("cut_header",)),
    Shape(
        "a doubled start",
        f"{_ANALYSIS}<|start|>{_START}<|channel|>final<|message|>y<|return|>",
        (_X, final("y")),
        ("doubled_start",),
    ),
    Shape(
        "a start of its own",
        f"{_START}<|channel|>final<|message|>y<|return|>",
        (final("y"),),
        ("doubled_start",),
    ),
    Shape("only a return", "<|return|>", (), ("stop_in_header",)),
    Shape("nothing", "", ()),
    Shape(
        "tokens after the end",
        "<|channel|>final<|message|>x<|return|><|start|>assistant<|channel|>final<|message|>y<|return|>",
        (final("x"), final("y")),
        ("after_stop",),
    ),
    Shape(
        "text after the end",
        "<|channel|>final<|message|>x<|return|>and more of it<|return|>",
        (final("x"), final("and more of it")),
        ("missing_start", "after_stop", "no_header"),
    ),
    Shape("the end of text", "<|channel|>final<|message|>x<|endoftext|>", (final("x"),)),
    Shape(
        "a message without start",
        f"{_ANALYSIS}<|channel|>final<|message|>y<|return|>",
        (_X, final("y")),
        ("missing_start",),
    ),
    Shape(
        "a message token alone",
        f"{_ANALYSIS}<|message|>y<|return|>",
        (_X, final("y")),
        ("missing_start", "no_channel"),
    ),
    Shape(
        "a role without start",
        f"{_ANALYSIS}assistant<|channel|>final<|message|>y<|return|>",
        (_X, final("y")),
        ("missing_start", "leftover_words"),
    ),
    Shape(
        "a start in a text",
        f"<|channel|>analysis<|message|>x{_START}<|channel|>final<|message|>y<|return|>",
        (("analysis", None, None, "x", "start"), final("y")),
        ("missing_end",),
    ),
    Shape(
        "a channel in a text",
        "<|channel|>analysis<|message|>x<|channel|>final<|message|>y<|return|>",
        (("analysis", None, None, "x", "start"), final("y")),
        ("missing_end",),
    ),
    Shape(
        "strays in a text",
        "<|channel|>final<|message|>a<|message|>b<|constrain|>c<|return|>",
        (final("abc"),),
        ("stray_token", "stray_token"),
    ),
    Shape(
        "a reserved token",
        "<|channel|>final<|message|>a<|reserved_200013|>b<|startoftext|><|return|>",
        (final("ab"),),
        ("reserved_token", "reserved_token"),
    ),
    # 3: no header
    Shape(
        "a bare refusal",
        "I'm sorry, but I can't help with that.<|return|>",
        (final("I'm sorry, but I can't help with that."),),
        ("no_header",),
    ),
    Shape("a short bare refusal", "No.<|return|>", (final("No."),), ("no_header",)),
    Shape(
        "a bare text with white space", "  No\n\n way <|return|>", (final("  No\n\n way "),), ("no_header",)
    ),
    Shape("a bare text cut short", "No", (final("No", "truncated"),), ("no_header",)),
    Shape(
        "a bare text after a role",
        f"{_ANALYSIS}{_START} I cannot do that for you.<|return|>",
        (_X, final("I cannot do that for you.")),
        ("no_header",),
    ),
    Shape(
        "an answer without message token",
        "<|channel|>final Hello there<|return|>",
        (final("Hello there"),),
        ("no_message_token",),
    ),
    Shape(
        "a call without message token",
        '<|channel|>commentary to=functions.f json{"a": 1}<|call|>',
        (call('{"a": 1}'),),
        ("no_message_token",),
    ),
    Shape(
        "a constrained call without message token",
        '<|channel|>commentary to=functions.f <|constrain|>json{"a": 1}<|call|>',
        (call('{"a": 1}'),),
        ("no_message_token",),
    ),
    # 4: a stop token in a header
    Shape(
        "an end after the channel",
        "<|channel|>analysis<|end|>",
        (("analysis", None, None, "", "end"),),
        ("stop_in_header",),
    ),
    Shape(
        "a call after the recipient",
        "<|channel|>commentary to=functions.f<|call|>",
        (call("", of=None),),
        ("stop_in_header",),
    ),
    Shape("an end after the role", f"{_ANALYSIS}{_START}<|return|>", (_X,), ("stop_in_header",)),
    Shape(
        "a start after the channel",
        f"<|channel|>analysis{_START}<|channel|>final<|message|>y<|return|>",
        (("analysis", None, None, "", "start"), final("y")),
        ("stop_in_header",),
    ),
    # 5: channels
    Shape(
        "a channel with a question mark",
        "<|channel|>commentary?<|message|>x<|end|>",
        (("commentary", None, None, "x", "end"),),
        ("unknown_channel",),
    ),
    Shape(
        "half a channel",
        "<|channel|>comment<|message|>x<|end|>",
        (("commentary", None, None, "x", "end"),),
        ("unknown_channel",),
    ),
    Shape(
        "an unknown channel", "<|channel|>poetry<|message|>x<|return|>", (final("x"),), ("unknown_channel",)
    ),
    Shape(
        "an unknown channel of a call",
        "<|channel|>poetry to=functions.f json<|message|>{}<|call|>",
        (call("{}"),),
        ("unknown_channel",),
    ),
    Shape("an empty channel", "<|channel|><|message|>x<|return|>", (final("x"),), ("no_channel",)),
    Shape(
        "an empty channel of a call",
        "<|channel|> to=functions.f json<|message|>{}<|call|>",
        (call("{}"),),
        ("no_channel",),
    ),
    Shape("no channel", "<|message|>x<|return|>", (final("x"),), ("no_channel",)),
    Shape(
        "no channel of a call",
        " to=functions.f <|constrain|>json<|message|>{}<|call|>",
        (call("{}"),),
        ("no_channel",),
    ),
    Shape(
        "a channel without its mark",
        f"{_ANALYSIS}{_START} final<|message|>y<|return|>",
        (_X, final("y")),
        ("no_channel",),
    ),
    # 6: recipients
    Shape(
        "a doubled recipient",
        " to=functions.f<|channel|>commentary to=functions.f json<|message|>{}<|call|>",
        (call("{}"),),
        ("doubled_recipient",),
    ),
    Shape(
        "a doubled to",
        "<|channel|>commentary to=to=functions.f json<|message|>{}<|call|>",
        (call("{}"),),
        ("doubled_recipient",),
    ),
    Shape(
        "a spaced to",
        "<|channel|>commentary to = functions.f json<|message|>{}<|call|>",
        (call("{}"),),
        ("odd_spacing",),
    ),
    Shape(
        "a bare name",
        "<|channel|>commentary to=f json<|message|>{}<|call|>",
        (call("{}"),),
        ("bare_recipient",),
    ),
    Shape(
        "no to",
        "<|channel|>commentary functions.f json<|message|>{}<|call|>",
        (call("{}"),),
        ("bare_recipient",),
    ),
    Shape(
        "a recipient in the place of the type",
        "<|channel|>commentary <|constrain|>functions.f<|message|>{}<|call|>",
        (call("{}", of=None),),
        ("bare_recipient",),
    ),
    Shape(
        "a recipient before the type, after its mark",
        "<|channel|>commentary<|constrain|>functions.f json<|message|>{}<|call|>",
        (call("{}"),),
        ("bare_recipient",),
    ),
    Shape(
        "python without to",
        "<|channel|>commentary python<|message|>1<|call|>",
        (call("1", "python", of=None),),
        ("bare_recipient",),
    ),
    Shape(
        "functions.browser",
        "<|channel|>commentary to=functions.browser.search json<|message|>{}<|call|>",
        (call("{}", "browser.search"),),
        ("misplaced_recipient",),
    ),
    Shape(
        "functions.python",
        "<|channel|>commentary to=functions.python json<|message|>{}<|call|>",
        (call("{}", "python"),),
        ("misplaced_recipient",),
    ),
    Shape(
        "a bare browser function",
        "<|channel|>commentary to=search json<|message|>{}<|call|>",
        (call("{}", "browser.search"),),
        ("bare_recipient",),
    ),
    Shape(
        "an undeclared function",
        "<|channel|>commentary to=functions.zzz json<|message|>{}<|call|>",
        (call("{}", "functions.zzz"),),
        ("undeclared_recipient",),
    ),
    Shape(
        "an undeclared namespace",
        "<|channel|>commentary to=container.exec json<|message|>{}<|call|>",
        (call("{}", "container.exec"),),
        ("undeclared_recipient",),
    ),
    Shape(
        "an unknown function of a namespace",
        "<|channel|>analysis to=browser.zoom code<|message|>{}<|call|>",
        (call("{}", "browser.zoom", channel="analysis", of="code"),),
        ("undeclared_recipient",),
    ),
    Shape("to the user", "<|channel|>final to=user<|message|>x<|return|>", (final("x"),), ("no_tool",)),
    Shape(
        "to all",
        "<|channel|>commentary to=all<|message|>x<|end|>",
        (("commentary", None, None, "x", "end"),),
        ("no_tool",),
    ),
    Shape(
        "a call on analysis",
        "<|channel|>analysis to=functions.f json<|message|>{}<|call|>",
        (call("{}", channel="analysis"),),
        ("call_channel",),
    ),
    Shape(
        "a call on final",
        "<|channel|>final to=functions.f json<|message|>{}<|call|>",
        (call("{}"),),
        ("call_channel",),
    ),
    Shape(
        "a call that returns",
        "<|channel|>commentary to=functions.f json<|message|>{}<|return|>",
        (call("{}", closed_by="return"),),
        ("call_end",),
    ),
    Shape(
        "a call that ends",
        "<|channel|>commentary to=functions.f json<|message|>{}<|end|>",
        (call("{}", closed_by="end"),),
        ("call_end",),
    ),
    Shape(
        "an answer that calls", "<|channel|>final<|message|>x<|call|>", (final("x", "call"),), ("call_end",)
    ),
    # 7: bodies, leftovers, ends in the middle
    Shape(
        "broken JSON",
        '<|channel|>commentary to=functions.f json<|message|>{"a": <|call|>',
        (call('{"a": '),),
        ("invalid_json",),
    ),
    Shape(
        "leftover words",
        "<|channel|>commentary to=functions.f json odd words<|message|>{}<|call|>",
        (call("{}"),),
        ("leftover_words",),
    ),
    Shape(
        "two types",
        "<|channel|>commentary to=functions.f code <|constrain|>json<|message|>{}<|call|>",
        (call("{}"),),
        ("leftover_words",),
    ),
    Shape("cut in the channel", "<|channel|>anal", (), ("cut_header",)),
    Shape("cut in the recipient", " to=func", (), ("cut_header",)),
    Shape("cut before the recipient", "<|channel|>commentary to", (), ("cut_header",)),
    Shape("cut in the type", "<|channel|>commentary to=functions.f js", (), ("cut_header",)),
    Shape(
        "cut after a word of text",
        "<|channel|>final Hello",
        (("final", None, None, "Hello", "truncated"),),
        ("no_message_token",),
    ),
    Shape("cut in the second header", f"{_ANALYSIS}{_START}<|channel|>fin", (_X,), ("cut_header",)),
    Shape("cut in the text", "<|channel|>final<|message|>Hel", (final("Hel", "truncated"),)),
    Shape(
        "cut in the arguments",
        '<|channel|>commentary to=functions.f json<|message|>{"a',
        (call('{"a', closed_by="truncated"),),
    ),
    # 8: foreign roles
    Shape(
        "a user", f"{_ANALYSIS}<|start|>user<|message|>Hi<|end|>", (_X, final("Hi", "end")), ("foreign_role",)
    ),
    Shape(
        "a tool result",
        f"{_ANALYSIS}<|start|>functions.f to=assistant<|channel|>commentary<|message|>4<|end|>",
        (_X, ("commentary", None, None, "4", "end")),
        ("foreign_role",),
    ),
    Shape(
        "no role",
        f"{_ANALYSIS}<|start|><|channel|>final<|message|>y<|return|>",
        (_X, final("y")),
        ("foreign_role",),
    ),
)

SHAPES = LEGAL + SLIPPED
