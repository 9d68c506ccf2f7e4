"""Stop strings: found wherever the text is split, and never shown in part."""

import random
from typing import Any

import pytest

from gpt_oss_server.turns.stops import StopFilter
from tests.doubles.apis.chat_asking import completion_of, message_of, replaying
from tests.doubles.random_tests.seeds import seeds


def shown(filter: StopFilter, pieces: list[str]) -> str:
    return "".join(filter.feed(piece) for piece in pieces) + filter.close()


@pytest.mark.parametrize("seed", seeds(60, proofs=200))
def test_the_text_ends_at_the_same_place_however_it_is_split(seed: int) -> None:
    rng = random.Random(seed)

    def drawn(length: int) -> str:
        return "".join(rng.choice("ab") for _ in range(length))

    text, stops = drawn(40), [drawn(rng.randrange(3, 7)) for _ in range(rng.randrange(1, 4))]
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    expected = text[: min(ends)[1]] if ends else text
    cuts = sorted(rng.sample(range(41), rng.randrange(10)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, 40], strict=True)]
    for split in (pieces, list(text)):
        assert shown(StopFilter(stops), split) == expected


def test_only_a_possible_beginning_of_a_stop_string_is_held_back() -> None:
    filter = StopFilter(["\n\n###"])
    assert [filter.feed(piece) for piece in ("One", "\n", "two\n\n#", "x")] == ["One", "", "\ntwo", "\n\n#x"]


async def test_the_generation_ends_with_the_stop_string() -> None:
    text = "<|channel|>final<|message|>" + "one two three four " * 50 + "<|return|>"
    engine = replaying(text)
    completion = await completion_of(engine, stop="three")
    choice = completion["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "three")
    assert choice["message"]["content"] == "one two "
    assert completion["usage"]["completion_tokens"] == 6
    assert engine.open_generations == 0


FINAL = "<|channel|>final<|message|>{}<|return|>"


async def test_the_stop_string_can_be_shown_and_held_text_is_when_the_text_ends() -> None:
    more: dict[str, Any] = {"stop": ["wo th"], "include_stop_str_in_output": True}
    completion = await completion_of(replaying(FINAL.format("one two three four")), **more)
    assert message_of(completion)["content"] == "one two th"
    completion = await completion_of(replaying(FINAL.format("The end.")), stop=["end. But"])
    assert message_of(completion)["content"] == "The end."


async def test_a_stop_string_in_the_reasoning_does_not_stop() -> None:
    thinks = "<|channel|>analysis<|message|>one two<|end|><|start|>assistant"
    (choice,) = (await completion_of(replaying(thinks + FINAL.format("four")), stop="two"))["choices"]
    assert (choice["message"]["reasoning"], choice["message"]["content"]) == ("one two", "four")
    assert choice["stop_reason"] is None
