"""Plain completions, /tokenize, /detokenize and /tokenizer_info.
What one request for completions may cost: the number of its choices, and when they are made.
"""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import openai
import pytest

from gpt_oss_server.apis.completions.api import start
from gpt_oss_server.apis.completions.run import CompletionRun
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.encoding import ENDOFTEXT, RETURN, Encoding
from gpt_oss_server.runs.served import Served
from gpt_oss_server.settings import Settings
from tests.doubles.apis.chat_asking import HI, TOOL
from tests.doubles.serving import leave_in_the_middle, scripted, serving

STORY = "Once upon a time, there was a 🧠.<|return|>"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(scripted(STORY, loop=True)) as base:
        yield base


def posted(url: str, **body: Any) -> dict[str, Any]:
    """Half of the paths are not below /v1."""
    return dict(httpx.post(url, json=body, timeout=60).json())


def test_a_text_is_continued_without_harmony(client: openai.OpenAI) -> None:
    made = client.completions.create(model="scripted", prompt="Tell:", max_tokens=100)
    assert made.choices[0].text == "Once upon a time, there was a 🧠."
    assert (made.choices[0].finish_reason, made.usage.prompt_tokens) == ("stop", 2)
    cut = client.completions.create(model="scripted", prompt="x", max_tokens=3)
    assert (cut.choices[0].text, cut.choices[0].finish_reason) == ("Once upon a", "length")
    more: Any = {"max_tokens": 100, "extra_body": {"skip_special_tokens": False}}
    assert client.completions.create(model="scripted", prompt="x", **more).choices[0].text == STORY


def test_several_prompts_and_choices_have_their_indices(client: openai.OpenAI) -> None:
    made = client.completions.create(model="scripted", prompt=["a", "b"], n=2, echo=True, max_tokens=2)
    shown = [(choice.index, choice.text[0]) for choice in made.choices]
    assert shown == [(0, "a"), (1, "a"), (2, "b"), (3, "b")]
    prompts: list[Any] = [[13225], [[13225], [13225, 0]]]
    for tokens in prompts:
        made = client.completions.create(model="scripted", prompt=tokens, max_tokens=1, echo=True)
        assert made.choices[0].text == "HelloOnce"


def test_a_stream_equals_the_completion(client: openai.OpenAI) -> None:
    body: Any = {"model": "scripted", "prompt": "x", "max_tokens": 100, "stop": "there w"}
    whole = client.completions.create(**body)
    *chunks, last = client.completions.create(**body, stream=True, stream_options={"include_usage": True})
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text == "Once upon a time, "
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert last.usage == whole.usage


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"suffix": "end"}, "suffix"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [""]}, "prompt[0]"),
        ({"prompt": [[1, 999_999]]}, "prompt[0]"),
        ({"prompt": [{"a": 1}]}, "prompt[0]"),
        ({"best_of": 3}, "best_of"),
        ({"echo": True, "logprobs": 1}, "logprobs"),
        ({"logprobs": 21}, "logprobs"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"prompt": "hello " * 140_000}, "prompt"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_an_error_names_the_field_that_cannot_be_served(url: str, body: dict[str, Any], param: str) -> None:
    response = httpx.post(f"{url}/completions", json={"prompt": "x", **body})
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


def test_a_text_to_tokens_and_back(url: str, encoding: Encoding) -> None:
    root, text = url.removesuffix("/v1"), "<|start|>user<|message|>naïve 🧠"
    made = posted(f"{root}/tokenize", prompt=text, return_token_strs=True)
    assert made["tokens"] == encoding.encode_special(text)
    assert made["count"] == len(made["tokens"]) == len(made["token_strs"])
    assert made["max_model_len"] == 131_072
    again = posted(f"{root}/detokenize", tokens=made["tokens"])
    assert again == {"prompt": text, "content": text}
    # llama.cpp's names for the text and its pieces; a piece may be a part of a character.
    assert posted(f"{root}/tokenize", content="naïve")["tokens"] == encoding.encode("naïve")
    pieces = posted(f"{root}/tokenize", content=text, with_pieces=True)["tokens"]
    assert [piece["id"] for piece in pieces] == encoding.encode_special(text)
    spelt = [piece["piece"] for piece in pieces]
    assert b"".join(p.encode() if isinstance(p, str) else bytes(p) for p in spelt).decode() == text
    assert any(isinstance(piece, list) for piece in spelt)


@pytest.mark.parametrize(
    ("most", "side", "kept"),
    [
        (3, None, [6, 7, 8]),
        (3, "left", [6, 7, 8]),
        (3, "right", [1, 2, 3]),
        (30, None, [*range(1, 9)]),
        (-1, None, [*range(1, 9)]),
    ],
)
def test_a_prompt_is_truncated_as_wanted(url: str, most: int, side: str | None, kept: list[int]) -> None:
    body: dict[str, Any] = {"prompt": list(range(1, 9)), "max_tokens": 10, "return_token_ids": True}
    body |= {"truncate_prompt_tokens": most} | ({} if side is None else {"truncation_side": side})
    made = posted(f"{url}/completions", **body)
    assert made["choices"][0]["prompt_token_ids"] == kept
    assert made["usage"]["prompt_tokens"] == len(kept)
    if most == -1:  # what leaves room for the answer
        made = posted(f"{url}/completions", **{**body, "prompt": [5] * 140_000})
        assert made["usage"]["prompt_tokens"] == 131_072 - 10


def test_a_stop_id_of_the_request_ends_the_text_before_it(url: str, encoding: Encoding) -> None:
    [comma] = encoding.encode(",")
    body = {"prompt": "x", "max_tokens": 50, "stop_token_ids": [comma]}
    choice = posted(f"{url}/completions", **body)["choices"][0]
    ended = choice["text"], choice["finish_reason"], choice["stop_reason"]
    assert ended == ("Once upon a time", "stop", comma)
    shown = posted(f"{url}/completions", **body, include_stop_str_in_output=True)
    assert shown["choices"][0]["text"] == "Once upon a time,"


def test_a_form_needs_an_engine_that_enforces_it(url: str) -> None:
    for field, value in (("guided_regex", "a"), ("guided_choice", ["a"])):
        error = posted(f"{url}/completions", prompt="x", **{field: value})["error"]
        assert (error["param"], error["code"]) == (field, "unsupported_parameter")


def test_the_tokens_of_messages_are_the_prompt_of_the_chat_request(url: str) -> None:
    path, body = f"{url.removesuffix('/v1')}/tokenize", {**HI, "tools": [TOOL]}
    tokens = posted(path, **body)["tokens"]
    assert posted(f"{url}/chat/completions", **body)["usage"]["prompt_tokens"] == len(tokens)
    assert posted(path, **body, add_generation_prompt=False)["tokens"] == tokens[:-2]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("tokenize", {}, "prompt"),
        ("tokenize", {"prompt": 3}, "prompt"),
        ("tokenize", {"messages": [{"role": "robot"}]}, "messages[0].role"),
        ("detokenize", {}, "tokens"),
        ("detokenize", {"tokens": [1, -4]}, "tokens"),
        ("detokenize", {"tokens": ["x"]}, "tokens"),
    ],
    ids=str,
)
def test_tokenize_errors_name_the_wrong_field(url: str, path: str, body: Any, param: str) -> None:
    response = httpx.post(f"{url.removesuffix('/v1')}/{path}", json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


def test_the_special_tokens_are_single_ids(url: str) -> None:
    root = url.removesuffix("/v1")
    info = httpx.get(f"{root}/tokenizer_info").json()
    spelt = [info[f"{name}_token"] for name in ("bos", "eos", "pad")]
    tokenized = [posted(f"{root}/tokenize", prompt=each, add_special_tokens=False) for each in spelt]
    begins, ends, pads = (each["tokens"] for each in tokenized)
    assert (len(begins), ends, pads) == (1, [RETURN], [ENDOFTEXT])
    assert info["model_max_length"] == 131_072


HELLO = "Hello!<|return|>"


async def run_of(engine: Any, settings: Settings | None = None, **body: Any) -> CompletionRun:
    return await start(LOCAL, {"max_tokens": 4, **body}, Served(engine, settings))


async def test_too_many_choices_are_refused_and_the_bound_is_a_setting() -> None:
    for prompt, n in ((["a"] * 20_000, 128), (["a"] * 17, 128), ([[1]] * 2_049, 1)):
        with pytest.raises(InvalidRequest, match="Send them in several requests") as refused:
            await run_of(scripted(HELLO), prompt=prompt, n=n)
        assert refused.value.param == "prompt"
    settings = Settings(max_choices=6)
    run = await run_of(scripted(HELLO, loop=True), settings, prompt=["a", "b", "c"], n=2)
    assert [choice["index"] for choice in (await run.wait())["choices"]] == list(range(6))
    with pytest.raises(InvalidRequest, match="6 at most"):
        await run_of(scripted(HELLO), settings, prompt=["a"] * 7)


def test_the_requests_of_a_client_share_choices_and_leave_some_for_others() -> None:
    served = Served(scripted(HELLO))
    wanted = (("a", 2_048), ("a", 2_048), ("b", 2_048), ("c", 1), ("c", 4), ("d", 2_048))
    for _ in range(2):  # what a request took comes back
        with ExitStack() as running:
            taken = [running.enter_context(served.parallel_choices(*each)) for each in wanted]
        assert taken == [128, 1, 1 + 64, 1, 4, 1 + 31]


MANY: dict[str, dict[str, Any]] = {
    "completions": {"prompt": ["a"] * 500, "n": 4},
    "chat/completions": {**HI, "n": 100},
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", MANY)
async def test_a_client_that_leaves_ends_all_choices_and_begins_no_more(path: str, stream: bool) -> None:
    engine = scripted("<|channel|>final<|message|>" + "word " * 500, loop=True, tokens_per_second=20)
    body = {**MANY[path], "max_tokens": 100, "stream": stream}
    with serving(engine, Settings(max_concurrent=2, max_waiting=2)) as url:
        await leave_in_the_middle(f"{url}/{path}", body, engine, generations=4)
        await asyncio.sleep(0.5)
        assert engine.active == 0


async def test_a_priority_needs_the_operators_consent() -> None:
    may = Settings(allow_priority=True)
    for priority in (-1_000, 1):
        with pytest.raises(InvalidRequest, match="--allow-priority") as refused:
            await run_of(scripted(HELLO), prompt="a", priority=priority)
        assert refused.value.param == "priority"
        await (await run_of(scripted(HELLO), may, prompt="a", priority=priority)).wait()
    await (await run_of(scripted(HELLO), prompt="a", priority=0)).wait()
