"""The places of hints, found in the tokens of conversations."""

from __future__ import annotations

import pytest

from gpt_oss_server.harmony.render import FunctionTool
from recipe.functions.copies import BEGINS, CONTINUES, NOTHING, copies_of
from recipe.functions.restating import LEADS, OPENS
from recipe.functions.tool_stock import Field, Offer, Request, words_of_wording
from recipe.functions.tool_thoughts import choosing
from recipe.skills.calls import arguments_of
from recipe.text.talk import Talk, Value, function_call, tokens_of
from recipe.text.vocabulary import encoding, likeness, token_table, word_of
from recipe.training.batches import learned_tokens
from recipe.training.marks import declared_names, marks_of, requests_in


def test_declared_names_are_found_where_they_begin(talks: list[Talk]) -> None:
    for talk in talks:
        names = declared_names(talk.tokens)
        written = {encoding().decode(list(name)).strip(): begin for name, begin in names.items()}
        assert set(written) == {tool.name for tool in talk.tools}
        for begin in written.values():
            assert encoding().decode(talk.tokens[:begin]).endswith("\ntype")


@pytest.mark.training
def test_no_name_is_found_without_declarations() -> None:
    talk = Talk("chat")
    talk.open(None)
    talk.user("Which type get_weather = is it?\ntype")
    assert declared_names(talk.tokens) == {}
    marks = marks_of([talk], learned_tokens(1, sample=60))
    assert len(marks.carried) == len(marks.looked) == 0


@pytest.mark.training
def test_every_naming_is_marked_with_the_beginning_of_the_name(talks: list[Talk]) -> None:
    marks, decode = marks_of(talks, learned_tokens(1, sample=60)), encoding().decode
    decided = considered = explained = found = 0
    for row, talk in enumerate(talks):
        if len(declared_names(talk.tokens)) == 1:
            continue
        decided += sum(turn.kind == "choice" for turn in talk.turns)
        thoughts = [decode(talk.tokens[turn.start : turn.end]).partition(LEADS)[0] for turn in talk.turns]
        considered += sum(thought.count("?") for thought in thoughts)
        explained += sum(thought.count(": ") for thought in thoughts)
        for _, place, begin in marks.looked[marks.looked[:, 0] == row].tolist():
            assert decode(talk.tokens[:begin]).endswith(("\ntype", "\n//"))
            following = decode([talk.tokens[place + 1]])
            assert following == " so" or talk.tokens[place + 1] == talk.tokens[begin]
            found += 1
    # Two places of each choice (whether, which), and the name and purpose of each considered function.
    assert found == 2 * decided + considered + explained
    assert min(decided, considered, explained) > 0


def first_piece(token: int) -> int:
    return int(token_table().pieces[token, 0])


@pytest.mark.training
def test_words_of_names_are_marked_with_similar_words_of_the_request(talks: list[Talk]) -> None:
    marks, decode = marks_of(talks, learned_tokens(1, sample=60)), encoding().decode
    spelt = meant = nowhere = 0
    for row, place, begin in marks.matched.tolist():
        tokens = talks[row].tokens
        assert "<|message|>The user needs a tool." in decode(tokens[: place + 1])[-800:]
        request = decode(tokens[:place]).rpartition("<|start|>user<|message|>")[2].partition("<|end|>")[0]
        word = word_of(tokens[place])
        if begin < 0:
            assert word not in request.lower().replace("?", "").replace(".", "").split()
            nowhere += 1
            continue
        found = decode([tokens[begin]]).strip(" _").lower()
        assert found in request.lower()
        same = word is not None and (found[:3], found[-3:]) == (word[:3], word[-3:])
        same |= first_piece(tokens[place]) == first_piece(tokens[begin])  # of "_rem", "inder" and " reminder"
        assert same or likeness([tokens[place]], [tokens[begin]]) > 100
        spelt, meant = spelt + same, meant + (not same)
    assert min(spelt, meant, nowhere) > 0


def test_names_and_values_are_marked_with_their_sources(calls: list[Talk]) -> None:
    marks, decode = marks_of(calls, learned_tokens(1, sample=60)), encoding().decode
    pieces = token_table().pieces
    taken_apart = [found for talk in calls for _, found in copies_of(talk, requests_in(talk.tokens))]
    copies = [copy for found in taken_apart for copy in found]
    names = near = values = 0
    for row, talk in enumerate(calls):
        tokens = talk.tokens
        for _, place, begin in marks.looked[marks.looked[:, 0] == row].tolist():
            before = decode(tokens[:place]).rpartition("<|start|>user<|message|>")[2]
            if LEADS not in before:
                continue
            if decode([tokens[place]]) == OPENS:  # the parameter's name: from the request or the declaration
                assert pieces[tokens[begin], 0] == pieces[tokens[place + 1], 0]
                near += "<|start|>user" in decode(tokens[:begin])
            elif tokens[place - 1] == tokens_of(":")[0]:  # a value in the call
                assert pieces[tokens[begin], 0] == tokens[place + 1]
                values += 1
            else:  # a name in the call, from the thought
                assert decode(tokens[:begin]).endswith(OPENS)
                assert tokens[place + 1] == tokens[begin]
                names += 1
    assert names == len(copies) > 20
    assert values == sum(copy.same for copy in copies) > names / 2
    assert 0 < near < names


def test_a_request_is_split_into_its_values_and_the_rest(calls: list[Talk]) -> None:
    marks, decode = marks_of(calls, learned_tokens(1, sample=60)), encoding().decode
    values = 0
    for row, talk in enumerate(calls):
        tags = {place: tag for _, place, tag in marks.tagged[marks.tagged[:, 0] == row].tolist()}
        spans: list[list[int]] = []
        for place, tag in sorted(tags.items()):
            assert "<|start|>user<|message|>" in decode(talk.tokens[:place])
            if tag == BEGINS:
                spans.append([place])
            elif tag == CONTINUES:
                assert spans[-1][-1] == place - 1
                spans[-1].append(place)
        for span in spans:
            value = decode([talk.tokens[place] for place in span]).strip()
            turn = next(turn for turn in talk.turns if turn.start > span[-1])
            assert f"{value}]" in decode(talk.tokens[turn.start : turn.end])
            values += 1
    assert values > 10


def a_call(function: str, text: str, values: dict[str, str]) -> Talk:
    tool = FunctionTool(function, None, {"type": "object", "properties": {name: {} for name in values}})
    fields = tuple((Field(name, "word"), Value(value)) for name, value in values.items())
    spans = tuple((text.index(value), text.index(value) + len(value)) for value in values.values())
    request = Request(tool, text, fields, spans, words_of_wording(text))
    talk = Talk("call")
    talk.open(None, tools=[tool])
    talk.user(text)
    call = function_call(Value(function), arguments_of(request))
    talk.turn(choosing("low", request, [Offer(tool, lambda: request)]), call, kind="call")
    return talk


def test_a_value_may_look_like_the_arguments_of_a_call() -> None:
    code = "JSON.stringify({a: 1})"
    talk = a_call("run_code", f"Run {code} with seed 7", {"code": code, "seed": "7"})
    ((_, copies),) = copies_of(talk, requests_in(talk.tokens))
    assert [encoding().decode(list(copy.name)) for copy in copies] == ["code", "seed"]
    assert all(copy.same for copy in copies)


def test_a_value_is_held_by_its_further_tokens_and_by_a_name_after_it() -> None:
    text = "Show movies using New York City for user id and city Rome"
    talk = a_call("show_movies", text, {"user_id": "New York City", "city": "Rome"})
    begun = requests_in(talk.tokens)[0]
    decode, marks = encoding().decode, marks_of([talk], learned_tokens(1, sample=60))
    holding = [
        (place - begun, decode([talk.tokens[place]]), decode([token]))
        for _, place, token in marks.held.tolist()
    ]
    assert [(text, of) for _, text, of in holding] == [
        (" York", " New"), (" City", " New"), (" user", " New"), (" id", " New"),
    ]  # fmt: skip
    assert [decode([talk.tokens[place]]) for _, place, tag in marks.tagged.tolist() if tag == BEGINS] == [
        " New",
        " Rome",
    ]
    looks = {place: begin for _, place, begin in marks.looked.tolist()}
    opened = [place for place in looks if decode([talk.tokens[place]]) == OPENS]
    places, thought = [looks[place] for place in opened], talk.turns[0].start
    named = [(decode(talk.tokens[at - 1 : at + 1]), at > thought) for at in places]
    assert named == [
        (" for user", False),  # after the value, in the request
        (" and city", True),  # before it, in the thought
    ]


def test_words_to_identify_are_marked_at_their_sources(calls: list[Talk]) -> None:
    marks, learned = marks_of(calls, learned_tokens(1, sample=60)), set(learned_tokens(1, sample=60).tolist())
    values = {(row, place) for row, place, tag in marks.tagged.tolist() if tag != NOTHING}
    assert len(marks.identified)
    for row, place, token in marks.identified.tolist():
        talk = calls[row]
        assert talk.tokens[place] == token
        before = encoding().decode(talk.tokens[:place])
        if any(turn.start <= place < turn.end for turn in talk.turns):  # in the thought, for the call
            assert OPENS in before.rpartition(LEADS)[2]
            continue
        assert "<|start|>user" in before
        returned = not before.rpartition("<|start|>")[2].startswith(("user", "assistant"))
        unsure = row not in marks.tagged[:, 0]
        assert token not in learned or (row, place) in values or returned or unsure
    assert values <= {(row, place) for row, place, _ in marks.identified.tolist()}
