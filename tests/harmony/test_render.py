"""Rendering: like the library where that is right; text stays text, and sampled tokens stay unchanged."""

import openai_harmony
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai_harmony import Author, DeveloperContent, Message, Role, SystemContent

from gpt_oss_server.harmony.declarations import Declared, Effort, FunctionTool
from gpt_oss_server.harmony.encoding import CALL, END, FIRST_SPECIAL, START, STOP_IDS, load_encoding
from gpt_oss_server.harmony.events import Channel, ClosedBy
from gpt_oss_server.harmony.history import Segment, kept
from gpt_oss_server.harmony.render import CallForm, Renderer
from tests.doubles.harmony.decoding import builtin_namespace, decode, messages_of, rendered
from tests.doubles.harmony.shapes import DECLARED, LEGAL, SHAPES, Shape
from tests.doubles.stored import known

ENCODING = load_encoding()
RENDERER = Renderer(ENCODING)
BROWSER, PYTHON = builtin_namespace("browser"), builtin_namespace("python")
FINAL, ANALYSIS = (f"<|start|>assistant<|channel|>{name}<|message|>" for name in ("final", "analysis"))

ODD_TEXTS = ("<|end|>", "a<|start|>assistant<|channel|>final<|message|>b", "東京 🧠", "", "\n", "<|return|>")
texts = st.text(max_size=40) | st.sampled_from(ODD_TEXTS)


def text_of(segment: Segment) -> str:
    return ENCODING.decode(segment.tokens)


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
@pytest.mark.parametrize("date", [None, "2025-06-28"])
@pytest.mark.parametrize("tools", ["", "browser", "python", "browser python"])
@pytest.mark.parametrize("functions", [False, True])
def test_the_system_message_is_the_librarys(
    effort: Effort, date: str | None, tools: str, functions: bool
) -> None:
    content = SystemContent.new().with_reasoning_effort(openai_harmony.ReasoningEffort(effort.capitalize()))
    if date is not None:
        content = content.with_conversation_start_date(date)
    if "browser" in tools:
        content = content.with_browser_tool()
    if "python" in tools:
        content = content.with_python_tool()
    namespaces = [named for named in (PYTHON, BROWSER) if named.name in tools]
    system = RENDERER.system(effort=effort, date=date, builtin_tools=namespaces, function_tools=functions)
    message = Message.from_role_and_content(Role.SYSTEM, content)
    assert system.tokens == rendered(message, function_tools=functions)


def test_identity_and_knowledge_cutoff_may_be_set() -> None:
    system = RENDERER.system(effort="low", date=None, identity="You are Bo.", knowledge_cutoff=None)
    low = openai_harmony.ReasoningEffort.LOW
    content = SystemContent(model_identity="You are Bo.", knowledge_cutoff=None, reasoning_effort=low)
    assert system.tokens == rendered(Message.from_role_and_content(Role.SYSTEM, content))


def test_the_developer_message_is_the_librarys() -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string", "description": "Where"}}}
    f = openai_harmony.ToolDescription(name="f", description="One\n\ntwo", parameters=parameters)
    g = openai_harmony.ToolDescription(name="g", description="")
    content = DeveloperContent.new().with_instructions("Be kind.\n").with_function_tools([f, g])
    tools = [FunctionTool("f", "One\n\ntwo", parameters), FunctionTool("g")]
    developer = known(RENDERER.developer(Declared("Be kind.\n", tools)))
    assert developer.tokens == rendered(Message.from_role_and_content(Role.DEVELOPER, content))


@settings(max_examples=200)
@given(texts, st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
def test_plain_messages_are_the_librarys(text: str, name: str) -> None:
    of = Message.from_role_and_content
    assert RENDERER.user(text).tokens == rendered(of(Role.USER, text))
    named = Message.from_author_and_content(Author.new(Role.USER, name), text)
    assert RENDERER.user(text, name=name).tokens == rendered(named)
    makers = {"final": RENDERER.answer, "commentary": RENDERER.preamble, "analysis": RENDERER.reasoning}
    for channel, make in makers.items():
        assert make(text).tokens == rendered(of(Role.ASSISTANT, text).with_channel(channel))


def test_results_of_tools_have_the_form_of_the_librarys() -> None:
    """The channel is analysis, because on commentary oss-harmony writes the recipient after it."""
    result = Message.from_author_and_content(Author.new(Role.TOOL, "python"), "<|end|> 1")
    result = result.with_channel("analysis").with_recipient("assistant")
    assert RENDERER.tool_result("python", "<|end|> 1", channel="analysis").tokens == rendered(result)
    of_function = text_of(RENDERER.tool_result("functions.f", "1"))
    assert of_function == "<|start|>functions.f to=assistant<|channel|>commentary<|message|>1<|end|>"


def test_past_calls_have_the_form_of_one_of_the_librarys_releases() -> None:
    """oss-harmony writes the channel first, openai-harmony the recipient."""
    message = Message.from_role_and_content(Role.ASSISTANT, '{"a": 1}').with_channel("commentary")
    theirs = rendered(message.with_recipient("functions.f").with_content_type("<|constrain|>json"))
    ours = [Renderer(ENCODING, call_form=form).call("functions.f", '{"a": 1}').tokens for form in CallForm]
    assert theirs in ours


@pytest.mark.parametrize(
    ("form", "channel", "kind", "expected"),
    [
        ("channel_first", "commentary", "json", "<|channel|>commentary to=functions.f <|constrain|>json"),
        ("recipient_first", "commentary", "json", " to=functions.f<|channel|>commentary <|constrain|>json"),
        ("channel_first", "analysis", "code", "<|channel|>analysis to=functions.f code"),
        ("recipient_first", "analysis", None, " to=functions.f<|channel|>analysis"),
    ],
)
def test_a_past_call_reads(form: str, channel: Channel, kind: str | None, expected: str) -> None:
    renderer = Renderer(ENCODING, call_form=CallForm(form))
    segment = renderer.call("functions.f", "{}", channel=channel, content_type=kind)
    assert text_of(segment) == f"<|start|>assistant{expected}<|message|>{{}}<|call|>"
    assert (segment.role, segment.recipient) == ("assistant", "functions.f")


@settings(max_examples=300)
@given(st.one_of(texts, st.text(st.characters(min_codepoint=0xD7FF, max_codepoint=0xE001), max_size=5)))
def test_a_users_text_is_always_text(text: str) -> None:
    segments = (
        RENDERER.user(text, name="b<|end|>"),
        RENDERER.developer_message(text),
        RENDERER.call(f"functions.{text}", text),
        RENDERER.tool_result(f"functions.{text}", text),
        RENDERER.developer(Declared(text, [FunctionTool("f", text, {"description": text})])),
    )
    for segment in filter(None, segments):
        special = [token for token in segment.tokens if token >= FIRST_SPECIAL]
        assert special[0] == START
        assert special[-1] in (END, CALL)
        assert not {START, END, CALL} & set(special[1:-1])


@settings(max_examples=200)
@given(texts.filter(lambda text: not any("\ud800" <= character <= "\udfff" for character in text)))
def test_rendered_text_decodes_to_itself(text: str) -> None:
    segments = [
        RENDERER.reasoning(text),
        RENDERER.call("functions.f", text),
        Renderer(ENCODING, call_form=CallForm.RECIPIENT_FIRST).call("python", text, content_type="code"),
        RENDERER.preamble(text),
        RENDERER.answer(text),
    ]
    tokens = [token for segment in segments for token in segment.tokens]
    messages = messages_of(decode(ENCODING, tokens[len(RENDERER.cue) :], DECLARED))
    assert [message.text for message in messages] == [text] * len(segments)
    headers = [(message.header.channel, message.header.recipient) for message in messages]
    assert headers == [(segment.channel, segment.recipient) for segment in segments]


def sampled(completion: str) -> tuple[list[int], list[Segment]]:
    tokens = ENCODING.encode_special(completion)
    return tokens, RENDERER.from_completion(tokens, messages_of(decode(ENCODING, tokens, DECLARED)))


@pytest.mark.parametrize("shape", LEGAL, ids=[shape.name for shape in LEGAL])
def test_sampled_ids_stay_unchanged(shape: Shape) -> None:
    tokens, segments = sampled(shape.completion)
    joined = [token for segment in segments for token in segment.tokens]
    assert joined[:2] == [START, *ENCODING.encode("assistant")]
    assert joined[2:-1] == tokens[:-1]
    assert joined[-1] == (CALL if shape.messages[-1][1] else END)
    assert [(s.channel, s.recipient) for s in segments] == [message[:2] for message in shape.messages]


@pytest.mark.parametrize("shape", SHAPES, ids=[shape.name for shape in SHAPES])
def test_a_completion_cut_anywhere_becomes_whole_messages(shape: Shape) -> None:
    tokens = ENCODING.encode_special(shape.completion)
    for cut in range(len(tokens) + 1):
        messages = messages_of(decode(ENCODING, tokens[:cut], DECLARED))
        segments = RENDERER.from_completion(tokens[:cut], messages)
        assert len(segments) == len(messages)
        for segment in segments:
            assert segment.tokens[0] == START
            assert segment.tokens[-1] in (END, CALL)
            assert not (STOP_IDS | {START, END}) & set(segment.tokens[1:-1])


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("<|channel|>final<|message|>Hel", [f"{FINAL}Hel<|end|>"]),
        ("<|channel|>final<|message|>x<|endoftext|>", [f"{FINAL}x<|end|>"]),
        ("I cannot do that.<|return|>", ["<|start|>assistantI cannot do that.<|end|>"]),
        (
            "<|channel|>analysis<|message|>x<|end|><|end|><|channel|>final<|message|>y<|return|>",
            [f"{ANALYSIS}x<|end|>", f"{FINAL}y<|end|>"],
        ),
        ("<|channel|>analysis<|message|>x<|start|>assistant<|channel|>fin", [f"{ANALYSIS}x<|end|>"]),
        (
            "<|channel|>commentary to=functions.f<|message|>{}<|return|>",
            ["<|start|>assistant<|channel|>commentary to=functions.f<|message|>{}<|call|>"],
        ),
        (f"<|return|><|start|>{FINAL}y<|return|><|return|>", [f"{FINAL}y<|end|>"]),
    ],
)
def test_slips_do_not_break_history(completion: str, expected: list[str]) -> None:
    assert [text_of(segment) for segment in sampled(completion)[1]] == expected


def test_reasoning_before_an_answer_is_dropped_and_within_a_tool_loop_kept() -> None:
    called = [RENDERER.call("functions.f", "{}"), RENDERER.tool_result("functions.f", "1")]
    code = RENDERER.call("python", "1", channel="analysis", content_type="code")
    ran = [code, RENDERER.tool_result("python", "1", channel="analysis")]
    old = [RENDERER.user("one"), RENDERER.reasoning("r1"), *called, RENDERER.reasoning("r2"), *ran]
    old += [RENDERER.preamble("p"), RENDERER.answer("a"), RENDERER.user("two")]
    loop = [RENDERER.reasoning("r3"), *called]
    shown = kept(old + loop)
    assert shown == [segment for segment in old if not segment.is_reasoning] + loop
    assert [segment.is_reasoning for segment in shown].count(True) == 1

    unanswered = [RENDERER.user("one"), RENDERER.reasoning("r1"), RENDERER.user("go on")]
    assert kept(unanswered) == unanswered


def test_sampled_tokens_extend_the_prompt_so_that_its_cache_holds() -> None:
    """Within a tool loop the next prompt starts with the last one and the tokens sampled after it."""
    head = [RENDERER.system(effort="low", date=None)]
    history = [RENDERER.user("one")]
    first = RENDERER.layout(head, history).tokens()
    completion, segments = sampled(
        "<|channel|>analysis<|message|>r<|end|>"
        "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>"
    )
    second = RENDERER.layout(head, [*history, *segments, RENDERER.tool_result("functions.f", "1")]).tokens()
    assert second[: len(first) + len(completion)] == first + completion


def test_developer_messages_that_open_a_conversation_join_the_instructions() -> None:
    system = RENDERER.system(effort="low", date=None)
    leading = [RENDERER.developer_message(text) for text in ("two", "three")]
    history = [*leading, RENDERER.user("hi"), RENDERER.developer_message("later")]
    head, rest = RENDERER.opening(system, history, Declared("one", [FunctionTool("f")]))
    assert head[0] is system
    assert rest == history[2:]
    assert text_of(head[1]) == (
        "<|start|>developer<|message|># Instructions\n\none\n\ntwo\n\nthree\n\n# Tools\n\n## functions\n\n"
        "namespace functions {\n\ntype f = () => any;\n\n} // namespace functions<|end|>"
    )


def test_without_instructions_and_tools_there_is_no_developer_message() -> None:
    system = RENDERER.system(effort="low", date=None)
    assert RENDERER.opening(system, [RENDERER.user("hi")], Declared())[0] == [system]
    assert RENDERER.developer(Declared("")) is None


def test_closed_by_has_a_name_for_every_end() -> None:
    ends = {shape.messages[-1][4] for shape in SHAPES if shape.messages}
    assert ends | {"start"} == set(map(str, ClosedBy))
