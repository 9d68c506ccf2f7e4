"""The fields of a chat request: their effect on the prompt, and the errors that name a refused field."""

from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import ApiError, ContextLengthExceeded
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from inference.engine import Sampling
from tests.doubles.apis.chat_asking import (
    HI,
    TOOL,
    completion_of,
    continuing,
    message_of,
    prompt_of,
    replaying,
    service_of,
)

HELLO = "<|channel|>final<|message|>Hello!<|return|>"


Refused = tuple[dict[str, Any], str]


def values(field: str, *wrong: Any) -> list[Refused]:
    """A field with each of these values, which the error names."""
    return [({field: value}, field) for value in wrong]


def fields(names: str, value: Any) -> list[Refused]:
    """Each of these fields, with the same value."""
    return [({name: value}, name) for name in names.split()]


def message(place: str, **content: Any) -> Refused:
    """One message, and the place in it that the error names."""
    return {"messages": [content]}, f"messages[0].{place}"


def tool(place: str, **content: Any) -> Refused:
    return {"tools": [content]}, f"tools[0].{place}"


def form(place: str, **content: Any) -> Refused:
    return {"response_format": content}, f"response_format{place}"


def calls(place: str, tool_calls: Any) -> Refused:
    return message(f"tool_calls{place}", role="assistant", tool_calls=tool_calls)


UNIQUE = {"type": "array", "uniqueItems": True}
LINKED = {"name": "a", "schema": {"$ref": "http://x"}, "strict": True}
NAMED = {"type": "function", "function": {"name": "g"}}
UNNAMED = {"type": "allowed_tools", "allowed_tools": {}}
AUDIO = {"type": "input_audio", "input_audio": {}}
REFUSED: list[Refused] = [
    *values("messages", None, [], "hi"),
    ({"messages": [3]}, "messages[0]"),
    message("role", role="robot", content="hi"),
    message("content", role="user"),
    message("content[0].type", role="user", content=[{"type": "hologram"}]),
    message("content[0].type", role="user", content=[AUDIO]),
    message("tool_call_id", role="tool", tool_call_id="x", content="1"),
    calls("", "x"),
    calls("[0].function", [{"id": "a"}]),
    calls("[0].id", [{"function": {"name": "f", "arguments": "{}"}}]),
    form("", type="xml"),
    form(".json_schema", type="json_schema"),
    form(".json_schema.name", type="json_schema", json_schema={}),
    form(".json_schema.schema", type="json_schema", json_schema=LINKED),
    form(".schema", type="json_object", schema="x"),
    form(".schema", type="json_object", schema=UNIQUE),
    ({"tool_choice": "always", "tools": [TOOL]}, "tool_choice"),
    ({"tool_choice": NAMED, "tools": [TOOL]}, "tool_choice"),
    ({"tool_choice": UNNAMED, "tools": [TOOL]}, "tool_choice.tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "required", "tools": [TOOL], **continuing("I")}, "continue_final_message"),
    *values("functions", [{"name": "f"}]),
    tool("function", type="function"),
    tool("function.name", type="function", function={"name": "two words"}),
    tool("custom.format", type="custom", custom={"name": "c", "format": 1}),
    tool("custom.format.type", type="custom", custom={"name": "c", "format": {"type": "x"}}),
    tool("type", type="hammer"),
    ({"tools": [TOOL], "function_call": "always"}, "function_call"),
    ({"web_search_options": {"filters": 1}}, "web_search_options.filters"),
    *values("tools", [{"type": "web_search"}]),
    ({"web_search_options": {}}, "tools"),
    *fields("echo use_beam_search return_tokens_as_token_ids continue_final_message", True),
    *fields("do_sample add_generation_prompt", False),
    *fields("lora_path structural_tag system input", "x"),
    *fields("truncation_side previous_response_id", "refusal"),
    *fields("max_new_tokens n_predict num_beams best_of mirostat prompt_logprobs", 2),
    *fields("typical_p xtc_probability repeat_penalty", 0.5),
    *fields("banned_tokens allowed_token_ids bad_words logprob_token_ids", [1]),
    *values("audio", {"voice": "alloy"}),
    *values("lora_request", {}),
    *values("modalities", ["text", "audio"]),
    *values("prediction", "x"),
    ({"prediction": {"type": "content", "content": [{"type": "image"}]}}, "prediction.content[0].type"),
    *values("text", {"format": {"type": "json_object"}}),
    *values("kv_transfer_params", {"prompt_token_ids": [1, 2]}),
    *values("guided_json", "{"),
    *values("guided_choice", []),
    *values("json_schema", UNIQUE),
    *values("grammar", "root := broken", "start: <[200002]>"),
    *values("regex", "(a"),
    ({"regex": "a", "guided_choice": ["a"]}, "regex"),
    ({"regex": "a", "response_format": {"type": "json_object"}}, "regex"),
    *(
        ({"structured_outputs": {name: text}}, f"structured_outputs.{name}")
        for name, text in (("structural_tag", "{}"), ("grammar", ""), ("regex", ""))
    ),
    ({"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
    *values("min_tokens", -1),
    *values("ignore_eos", "yes"),
    *values("repetition_penalty", 0),
    *values("stop_token_ids", [10**9]),
    *values("generation_config", "{", "[" * 100_000, '{"temperature": NaN}', "[]"),
    ({"generation_config": '{"num_beams": 4}'}, "generation_config.num_beams"),
    ({"generation_config": {"penalty_alpha": 0.6}}, "generation_config.penalty_alpha"),
    *values("temperature", 3, "hot"),
    *values("top_logprobs", 3),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    *values("n", 0, True),
    *values("stop", ["a"] * 65, ["a", ""], 3),
    ({"stop": ["a", 3]}, "stop[1]"),
    *values("max_tokens", 0),
    ({"logit_bias": {"-1": 1}}, "logit_bias.-1"),
    ({"metadata": {"a": 1}}, "metadata.a"),
    *values("reasoning_effort", "enormous"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    *values("model", "gpt-5"),
]


@pytest.mark.parametrize(("body", "param"), REFUSED, ids=lambda value: str(value)[:60])
async def test_an_error_names_the_field_that_cannot_be_served(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        await service_of(replaying(HELLO)).start(LOCAL, {**HI, **body})
    assert refused.value.param == param
    assert refused.value.status in (400, 404)


async def test_the_error_for_an_unknown_part_states_how_to_send_text() -> None:
    thought = {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}]}
    with pytest.raises(ApiError, match=r"'thinking' is not .* The type of text is 'text'"):
        await prompt_of(messages=[*HI["messages"], thought])


async def test_every_engine_accepts_a_top_k_of_minus_one() -> None:
    engine = replaying(HELLO, honours=frozenset({"temperature"}))
    await completion_of(engine, top_k=-1)
    assert engine.samplings[0].top_k == 0


async def test_the_checkpoints_defaults_hold_where_a_request_sets_nothing() -> None:
    own_fields: Any = {"top_k": 40, "repetition_penalty": 1.2, "max_tokens": 7}
    defaults = Sampling(temperature=0.0, stop_token_ids=frozenset({200002, 5}), **own_fields)
    engine = replaying(HELLO, defaults=defaults)
    await completion_of(engine)
    await completion_of(engine, ignore_eos=True, stop_token_ids=[6], max_tokens=9)
    await completion_of(engine, temperature=1, top_k=-1, repetition_penalty=1)
    await completion_of(engine, Settings(default_max_output_tokens=8))
    plain, ignoring, own, operated = engine.samplings
    for name in ("temperature", "max_tokens", "top_k", "repetition_penalty", "stop_token_ids"):
        assert getattr(plain, name) == getattr(defaults, name)
    assert (ignoring.stop_token_ids, ignoring.ignored_stop_ids) == ({200002, 5, 6}, {200002, 5})
    assert (own.temperature, own.top_k, own.repetition_penalty) == (1, 0, 1)
    assert (ignoring.max_tokens, operated.max_tokens) == (9, 8)


async def test_fields_without_effect_are_accepted() -> None:
    neutral = ("repeat_penalty", "typical_p", "best_of", "repetition_penalty", "some_new_field")
    body = {
        **dict.fromkeys(neutral, 1),
        **dict.fromkeys(("store", "parallel_tool_calls"), True),
        "user": "me",
        "service_tier": "auto",
        "response_format": {"type": "text"},
        "grammar": "",
        "n_predict": -1,
        "kv_transfer_params": {"do_remote_prefill": True},
        "mirostat": 0,
        "modalities": ["text"],
        "prediction": {"type": "content", "content": "x"},
    }
    completion = await completion_of(replaying(HELLO), **body, metadata={"ticket": "42"})
    assert message_of(completion)["content"] == "Hello!"
    assert completion["metadata"] == {"ticket": "42"}


async def test_every_role_is_rendered_in_harmony() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"city":"Oslo"}'}}
    picture = [{"type": "text", "text": "Weather?"}, {"type": "image_url", "image_url": {}}]
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": picture},
        {"role": "assistant", "reasoning": "I ask.", "content": "A moment.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ]
    prompt = await prompt_of(messages=messages, tools=[TOOL])
    after_tools = prompt.partition("} // namespace functions<|end|>")[2]
    assert "# Instructions\n\nBe kind.\n\nBe brief.\n\n# Tools" in prompt
    assert after_tools == (
        "<|start|>user<|message|>Weather?\n[An image was attached here. This model reads text only and "
        "cannot see it.]<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>I ask.<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>A moment.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
        '{"city":"Oslo"}<|call|>'
        "<|start|>functions.f to=assistant<|channel|>commentary<|message|>sunny<|end|>"
        "<|start|>assistant"
    )


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_reasoning_of_an_answered_turn_is_dropped(field: str) -> None:
    answer = {"role": "assistant", field: "A greeting.", "content": "Hello!"}
    prompt = await prompt_of(messages=[*HI["messages"], answer, {"role": "user", "content": "again"}])
    assert "A greeting." not in prompt
    assert "<|channel|>final<|message|>Hello!<|end|>" in prompt


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({"reasoning_effort": "max"}, "Reasoning: high"),
        ({"reasoning_effort": "none"}, "Reasoning: low"),
        ({"reasoning": {"effort": "low"}}, "Reasoning: low"),
        ({"chat_template_kwargs": {"reasoning_effort": "high"}}, "Reasoning: high"),
        ({"chat_template_kwargs": {"date": "1999-12-31"}}, "Current date: 1999-12-31"),
        ({"chat_template_kwargs": {"model_identity": "You are Marvin."}}, "<|message|>You are Marvin."),
        ({"verbosity": "low"}, "Keep the final answer short."),
        ({"tools": [TOOL]}, "type f = "),
    ],
    ids=str,
)
async def test_a_field_appears_in_the_prompt(body: dict[str, Any], part: str) -> None:
    assert part in await prompt_of(**body)


async def test_tool_choice_none_shows_no_tools() -> None:
    assert "namespace" not in await prompt_of(tools=[TOOL], tool_choice="none")


async def test_sampling_reaches_the_engine_and_each_choice_has_its_seed() -> None:
    engine = replaying(HELLO)
    sampling = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1}
    await completion_of(engine, n=3, seed=7, **sampling, logit_bias={"5": -3}, max_tokens=9)
    assert [sampling.seed for sampling in engine.samplings] == [7, 8, 9]
    first = engine.samplings[0]
    assert {name: getattr(first, name) for name in sampling} == sampling
    assert (first.logit_bias, first.max_tokens, first.logprobs) == ({5: -3}, 9, None)


async def test_truncation_drops_the_oldest_turns() -> None:
    said = (("system", "Be kind."), ("user", "old " * 100), ("assistant", "Yes."), ("user", "new"))
    turns = [{"role": role, "content": content} for role, content in said]
    prompt = await prompt_of(messages=turns, truncate_prompt_tokens=120)
    assert "old" not in prompt
    assert "Be kind." in prompt
    with pytest.raises(ContextLengthExceeded):
        await prompt_of(messages=turns, truncate_prompt_tokens=10)


async def test_truncation_cuts_the_longest_texts_of_a_newest_turn(encoding: Encoding) -> None:
    """They keep their ends, where vLLM keeps that of the prompt."""
    words = " ".join(f"w{number}" for number in range(400))
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    turns = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Sum it up."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": words},
    ]
    for messages in (turns, [*turns[:1], {"role": "user", "content": f"{words} Sum it up."}]):
        with pytest.raises(ContextLengthExceeded):
            await prompt_of(messages=messages, max_tokens=9, truncate_prompt_tokens=40)
        prompt = await prompt_of(messages=messages, max_tokens=9, truncate_prompt_tokens=200)
        assert len(encoding.encode_special(prompt)) == 200
        assert all(text in prompt for text in ("Be kind.", "Sum it up.", " w399"))
        assert "w99 " not in prompt


async def test_debug_mode_shows_prompt_and_output_of_every_choice() -> None:
    completion = await completion_of(replaying(HELLO), n=2, metadata={"__debug": True, "mine": "x"})
    metadata = completion["metadata"]
    assert metadata["mine"] == "x"
    assert metadata["__debug"] == metadata["__debug_input"] + HELLO
    assert metadata["__debug_output_1"] == HELLO


async def test_reasoning_can_be_left_out() -> None:
    thinks = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant" + HELLO
    message = message_of(await completion_of(replaying(thinks), include_reasoning=False))
    assert message == {"role": "assistant", "content": "Hello!", "refusal": None}
