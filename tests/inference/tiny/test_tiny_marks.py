"""Where training asks for something in between: found again in the tokens of conversations."""

from __future__ import annotations

import json
import re

from gpt_oss_server.harmony.render import FunctionTool
from inference.tiny.batches import learned_tokens
from inference.tiny.copies import BEGINS, GOES_ON, NOTHING
from inference.tiny.marks import declared_names, marks_of
from inference.tiny.talk import CONSTRAIN, MESSAGE, PAST, Talk, Value, function_call, json_object
from inference.tiny.vocabulary import encoding


def test_declared_names_are_found_where_they_begin(talks: list[Talk]) -> None:
    for talk in talks:
        names = declared_names(talk.tokens)
        written = {encoding().decode(list(name)).strip(): begin for name, begin in names.items()}
        assert set(written) == {tool.name for tool in talk.tools}
        for begin in written.values():
            assert encoding().decode(talk.tokens[:begin]).endswith("\ntype")


def test_no_name_is_found_where_nothing_is_declared() -> None:
    talk = Talk("chat")
    talk.open(None)
    talk.user("Which type get_weather = is it?\ntype")
    assert declared_names(talk.tokens) == {}
    marks = marks_of([talk], learned_tokens(1))
    assert len(marks.carried) == len(marks.looked) == 0


def test_every_naming_is_marked_with_where_the_name_begins(talks: list[Talk]) -> None:
    marks = marks_of(talks, learned_tokens(1))
    said = 0
    for row, talk in enumerate(talks):
        several = len(declared_names(talk.tokens)) > 1
        said += several * sum(turn.kind == "choice" for turn in talk.turns)
        looked = marks.looked[marks.looked[:, 0] == row].tolist()
        for (_, deciding, fits), (_, naming, begin) in zip(looked[::2], looked[1::2], strict=True):
            assert naming == deciding + 1
            assert fits == begin
            assert encoding().decode(talk.tokens[: naming + 1]).endswith(", so")
            assert talk.tokens[naming + 1] == talk.tokens[begin]
    assert len(marks.looked) == 2 * said > 0


def test_a_value_is_marked_with_where_it_begins_in_the_request(calls: list[Talk]) -> None:
    marks, decode = marks_of(calls, learned_tokens(1)), encoding().decode
    marked = values = 0
    for row, talk in enumerate(calls):
        turns = [turn for turn in talk.turns if turn.kind != PAST]
        places = {place: begin for _, place, begin in marks.looked[marks.looked[:, 0] == row].tolist()}
        for turn in (turn for turn in turns if CONSTRAIN in talk.tokens[turn.start : turn.end]):
            body = talk.tokens.index(MESSAGE, talk.tokens.index(CONSTRAIN, turn.start)) + 1
            arguments = json.loads(decode(talk.tokens[body : turn.end - 1]))
            asked = decode(talk.tokens[: turn.start]).rpartition("<|start|>user<|message|>")[2]
            found = sorted(place for place in places if body <= place < turn.end)
            values += len(arguments)
            marked += len(found)
            for place in found:
                begun, source = decode(talk.tokens[body : place + 1]), decode(talk.tokens[places[place] :])
                value = arguments[re.findall(r'"([^"]+)": "?$', begun)[0]]
                assert source.lstrip().startswith(str(value))
                assert asked.count(str(value)) >= 1
    assert marked > values / 2 > 10


def test_a_request_is_taken_apart_into_its_values_and_the_rest(calls: list[Talk]) -> None:
    marks, decode = marks_of(calls, learned_tokens(1)), encoding().decode
    values = 0
    for row, talk in enumerate(calls):
        tags = {place: tag for _, place, tag in marks.tagged[marks.tagged[:, 0] == row].tolist()}
        spans: list[list[int]] = []
        for place, tag in sorted(tags.items()):
            assert "<|start|>user<|message|>" in decode(talk.tokens[:place])
            if tag == BEGINS:
                spans.append([place])
            elif tag == GOES_ON:
                assert spans[-1][-1] == place - 1
                spans[-1].append(place)
        for span in spans:
            value = decode([talk.tokens[place] for place in span]).strip()
            turn = next(turn for turn in talk.turns if turn.start > span[-1])
            assert re.search(rf'": "?{re.escape(value)}[",}}]', decode(talk.tokens[turn.start : turn.end]))
            values += 1
    assert values > 10


def test_a_value_is_held_by_its_further_tokens_and_by_a_name_behind_it() -> None:
    tool = FunctionTool("show_movies", None, {"type": "object", "properties": {"user_id": {}, "city": {}}})
    talk = Talk("call")
    talk.open(None, tools=[tool])
    begun = len(talk.tokens)
    talk.user("Show movies using New York City for user id and city Rome")
    arguments = [("user_id", Value("New York City"), True), ("city", Value("Rome"), True)]
    talk.turn(function_call(Value("show_movies"), json_object(arguments)), kind="call")
    decode = encoding().decode
    holding = [
        (place - begun, decode([talk.tokens[place]]), decode([token]))
        for _, place, token in marks_of([talk], learned_tokens(1)).held.tolist()
    ]
    assert [(text, of) for _, text, of in holding] == [
        (" York", " New"), (" City", " New"), (" user", " New"), (" id", " New"),
    ]  # fmt: skip
    tagged = marks_of([talk], learned_tokens(1)).tagged
    assert [decode([talk.tokens[place]]) for _, place, tag in tagged.tolist() if tag == BEGINS] == [
        " New",
        " Rome",
    ]


def test_nothing_is_said_of_a_request_that_has_a_value_twice() -> None:
    tool = FunctionTool("rate", None, {"type": "object", "properties": {"film": {}, "stars": {}}})
    talk = Talk("call")
    talk.open(None, tools=[tool])
    talk.user("Rate the film Oslo 4 with 4 stars")
    arguments = [("film", Value("Oslo 4"), True), ("stars", Value("4"), False)]
    talk.turn(function_call(Value("rate"), json_object(arguments)), kind="call")
    marks = marks_of([talk], learned_tokens(1))
    assert len(marks.tagged) == 0
    assert len(marks.held) == 2  # " ", "4" of the film, which is there once


def test_words_that_have_to_be_told_are_marked_where_they_were_said(calls: list[Talk]) -> None:
    marks, learned = marks_of(calls, learned_tokens(1)), set(learned_tokens(1).tolist())
    values = {(row, place) for row, place, tag in marks.tagged.tolist() if tag != NOTHING}
    assert len(marks.told)
    for row, place, token in marks.told.tolist():
        talk = calls[row]
        assert talk.tokens[place] == token
        assert not any(turn.start <= place < turn.end for turn in talk.turns)
        before = encoding().decode(talk.tokens[:place])
        assert "<|start|>user" in before
        returned = not before.rpartition("<|start|>")[2].startswith(("user", "assistant"))
        unsure = row not in marks.tagged[:, 0]
        assert token not in learned or (row, place) in values or returned or unsure
    assert values <= {(row, place) for row, place, _ in marks.told.tolist()}
