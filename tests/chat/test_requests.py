"""The fields of a chat request: their effect on the prompt, and the errors that name a refused field."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import ApiError, ContextLengthExceeded
from tests.doubles.apis.chat_asking import HI, TOOL, completion_of, message_of, replaying, service_of

HELLO = "<|channel|>final<|message|>Hello!<|return|>"


async def prompt_of(**body: Any) -> str:
    service = service_of(replaying(HELLO))
    return service.served.model.encoding.decode(await service.prompt(LOCAL, {**HI, **body}))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [3]}, "messages[0]"),
    ({"messages": [{"role": "robot", "content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "hologram"}]}]}, "messages[0].content[0].type"),
    (
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
        "messages[0].content[0].type",
    ),
    ({"messages": [{"role": "tool", "tool_call_id": "x", "content": "1"}]}, "messages[0].tool_call_id"),
    ({"messages": [{"role": "assistant", "tool_calls": "x"}]}, "messages[0].tool_calls"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]},
        "messages[0].tool_calls[0].function",
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]},
        "messages[0].tool_calls[0].id",
    ),
    ({"response_format": {"type": "xml"}}, "response_format"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.name"),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": {"$ref": "http://x"}, "strict": True},
            }
        },
        "response_format.json_schema.schema",
    ),
    ({"tool_choice": "always", "tools": [TOOL]}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "g"}}, "tools": [TOOL]}, "tool_choice"),
    ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {}}, "tools": [TOOL]}, "tool_choice.tools"),
    ({"function_call": {"name": "g"}, "functions": [TOOL["function"]]}, "function_call"),
    ({"tool_choice": "required", "tools": [TOOL], "response_prefix": "I"}, "response_prefix"),
    (
        {"function_call": {"name": "f"}, "functions": [TOOL["function"]], "response_prefix": ""},
        "response_prefix",
    ),
    ({"functions": [TOOL["function"]], "tools": [TOOL]}, "functions"),
    ({"functions": [{"name": "two words"}]}, "functions[0].name"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "function", "function": {"name": "two words"}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "custom", "custom": {"name": "c", "format": 1}}]}, "tools[0].custom.format"),
    (
        {"tools": [{"type": "custom", "custom": {"name": "c", "format": {"type": "x"}}}]},
        "tools[0].custom.format.type",
    ),
    ({"tools": [TOOL], "function_call": "always"}, "function_call"),
    ({"web_search_options": {"filters": 1}}, "web_search_options.filters"),
    ({"tools": [{"type": "hammer"}]}, "tools[0].type"),
    ({"tools": [{"type": "web_search"}]}, "tools"),
    ({"web_search_options": {}}, "tools"),
    ({"use_beam_search": True}, "use_beam_search"),
    ({"prompt_logprobs": 1}, "prompt_logprobs"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"audio": {"voice": "alloy"}}, "audio"),
    ({"lora_request": {}}, "lora_request"),
    ({"lora_path": "mine"}, "lora_path"),
    ({"best_of": 2}, "best_of"),
    ({"preamble_field": "refusal"}, "preamble_field"),
    ({"guided_json": "{"}, "guided_json"),
    ({"guided_choice": []}, "guided_choice"),
    ({"json_schema": {"type": "array", "uniqueItems": True}}, "json_schema"),
    ({"grammar": "root := broken"}, "grammar"),
    ({"grammar": "start: <[200002]>"}, "grammar"),
    ({"regex": "(a"}, "regex"),
    ({"regex": "a", "guided_choice": ["a"]}, "regex"),
    ({"regex": "a", "response_format": {"type": "json_object"}}, "regex"),
    ({"regex": "a", "banned_strings": ["b"]}, "banned_strings"),
    ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag"),
    ({"structured_outputs": {"grammar": ""}}, "structured_outputs.grammar"),
    ({"structured_outputs": {"regex": ""}}, "structured_outputs.regex"),
    ({"kv_transfer_params": {"prompt_token_ids": [1, 2]}}, "kv_transfer_params"),
    ({"bad_words": [""]}, "bad_words"),
    ({"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"ignore_eos": "yes"}, "ignore_eos"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"stop_token_ids": [10**9]}, "stop_token_ids"),
    ({"generation_config": "{"}, "generation_config"),
    ({"generation_config": "[" * 100_000}, "generation_config"),
    ({"generation_config": '{"temperature": NaN}'}, "generation_config"),
    ({"generation_config": "[]"}, "generation_config"),
    ({"generation_config": '{"num_beams": 4}'}, "generation_config.num_beams"),
    ({"generation_config": {"penalty_alpha": 0.6}}, "generation_config.penalty_alpha"),
    ({"max_new_tokens": 3}, "max_new_tokens"),
    ({"do_sample": False}, "do_sample"),
    ({"num_beams": 2}, "num_beams"),
    ({"banned_tokens": [1]}, "banned_tokens"),
    ({"allowed_tokens": [1]}, "allowed_tokens"),
    ({"typical": 0.5}, "typical"),
    ({"tfs": 0.5}, "tfs"),
    ({"top_a": 0.5}, "top_a"),
    ({"mirostat_mode": 2}, "mirostat_mode"),
    ({"smoothing_factor": 0.2}, "smoothing_factor"),
    ({"rep_pen": 1.2}, "rep_pen"),
    ({"penalty_range": 64}, "penalty_range"),
    ({"cfg_scale": 1.5}, "cfg_scale"),
    ({"negative_prompt": "no"}, "negative_prompt"),
    ({"ban_eos_token": True}, "ban_eos_token"),
    ({"template_vars": {"a": 1}}, "template_vars"),
    ({"prompt_template": "x"}, "prompt_template"),
    ({"structural_tag": "{}"}, "structural_tag"),
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"text": {"format": {"type": "json_object"}}}, "text"),
    ({"system": "Be brief."}, "system"),
    ({"truncation_side": "right"}, "truncation_side"),
    ({"logprob_token_ids": [5]}, "logprob_token_ids"),
    ({"n_predict": 3}, "n_predict"),
    ({"repeat_penalty": 1.5}, "repeat_penalty"),
    ({"response_format": {"type": "json_object", "schema": "x"}}, "response_format.schema"),
    (
        {"response_format": {"type": "json_object", "schema": {"type": "array", "uniqueItems": True}}},
        "response_format.schema",
    ),
    ({"tool_choice": "required"}, "tool_choice"),
    (
        {"messages": [*HI["messages"], {"role": "tool", "name": "files.delete", "approve": True}]},
        "messages[1].tool_call_id",
    ),
    ({"input": "hi"}, "input"),
    ({"temperature": 3}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"n": 0}, "n"),
    ({"n": True}, "n"),
    ({"stop": ["a"] * 65}, "stop"),
    ({"stop": ["a", ""]}, "stop"),
    ({"stop": ["a", 3]}, "stop[1]"),
    ({"stop": 3}, "stop"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"logit_bias": {"-1": 1}}, "logit_bias.-1"),
    ({"logit_bias": [[5]]}, "logit_bias[0]"),
    ({"logit_bias": [["x", True]]}, "logit_bias[0]"),
    ({"metadata": {"a": 1}}, "metadata.a"),
    ({"reasoning_effort": "enormous"}, "reasoning_effort"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"add_generation_prompt": False}, "add_generation_prompt"),
    ({"continue_final_message": True}, "continue_final_message"),
    ({"model": "gpt-5"}, "model"),
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


async def test_fields_without_effect_are_accepted() -> None:
    body = {
        "store": True,
        "user": "me",
        "service_tier": "auto",
        "parallel_tool_calls": True,
        "response_format": {"type": "text"},
        "grammar": "",
        "n_predict": -1,
        "repeat_penalty": 1.0,
        "typical_p": 1,
        "kv_transfer_params": {"do_remote_prefill": True},
        "mirostat": 0,
        "modalities": ["text"],
        "prediction": {"type": "content", "content": "x"},
        "some_new_field": 1,
        "best_of": 1,
        "repetition_penalty": 1.0,
        "metadata": {"ticket": "42"},
    }
    completion = await completion_of(replaying(HELLO), **body)
    assert message_of(completion)["content"] == "Hello!"
    assert completion["metadata"] == {"ticket": "42"}


async def test_every_role_is_rendered_in_harmony() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"city":"Oslo"}'}}
    picture = [{"type": "text", "text": "Weather?"}, {"type": "image_url", "image_url": {}}]
    prompt = await prompt_of(
        messages=[
            {"role": "system", "content": "Be kind."},
            {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
            {
                "role": "user",
                "content": picture,
            },
            {"role": "assistant", "reasoning": "I ask.", "content": "A moment.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        ],
        tools=[TOOL],
    )
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
    prompt = await prompt_of(
        messages=[
            {"role": "user", "content": "hi"},
            {"role": "assistant", field: "A greeting.", "content": "Hello!"},
            {"role": "user", "content": "again"},
        ]
    )
    assert "A greeting." not in prompt
    assert "<|channel|>final<|message|>Hello!<|end|>" in prompt


async def test_the_old_form_of_functions() -> None:
    prompt = await prompt_of(
        messages=[
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "done"},
        ],
        functions=[TOOL["function"]],
    )
    assert "<|start|>functions.f to=assistant<|channel|>commentary<|message|>done<|end|>" in prompt


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
        ({"response_prefix": "Well,"}, "<|start|>assistant<|channel|>final<|message|>Well,"),
        ({"tools": [TOOL]}, "type f = "),
    ],
    ids=str,
)
async def test_a_field_appears_in_the_prompt(body: dict[str, Any], part: str) -> None:
    assert part in await prompt_of(**body)


async def test_tool_choice_none_shows_no_tools() -> None:
    assert "namespace" not in await prompt_of(tools=[TOOL], tool_choice="none")
    assert "namespace" not in await prompt_of(functions=[TOOL["function"]], function_call="none")


async def test_sampling_reaches_the_engine_and_each_choice_has_its_seed() -> None:
    engine = replaying(HELLO)
    await completion_of(
        engine,
        n=3,
        seed=7,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        logit_bias={"5": -3},
        max_tokens=9,
    )
    assert [sampling.seed for sampling in engine.samplings] == [7, 8, 9]
    first = engine.samplings[0]
    assert (first.temperature, first.top_p, first.top_k, first.min_p) == (0.5, 0.9, 40, 0.1)
    assert (first.logit_bias, first.max_tokens, first.logprobs) == ({5: -3}, 9, None)


async def test_truncation_drops_the_oldest_turns() -> None:
    turns = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "old " * 100},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "new"},
    ]
    prompt = await prompt_of(messages=turns, truncate_prompt_tokens=120)
    assert "old" not in prompt
    assert "Be kind." in prompt
    with pytest.raises(ContextLengthExceeded):
        await prompt_of(messages=turns, truncate_prompt_tokens=10)


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


async def test_token_ids_replace_tokens() -> None:
    from tests.doubles.serving import scripted

    completion = await completion_of(
        scripted(HELLO), logprobs=True, top_logprobs=1, return_tokens_as_token_ids=True
    )
    assert completion["choices"][0]["logprobs"]["content"][0]["token"] == "token_id:13225"
