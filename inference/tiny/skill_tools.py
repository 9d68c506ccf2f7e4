"""Conversations about declared functions: choose one, call it, answer from what it returned, or decline."""

from __future__ import annotations

import json
from random import Random

from gpt_oss_server.harmony.render import FunctionTool
from inference.tiny import stock
from inference.tiny.skill_chat import a_date, an_effort, answer_everyday, earlier_question, instructions
from inference.tiny.talk import (
    Talk,
    Value,
    answer,
    function_call,
    json_object,
    message,
    plain,
    renderer,
    write,
)
from inference.tiny.tool_stock import Request, found, made_up_request, stock_request
from inference.tiny.words import Words, choose

_EXPLAIN = (
    "Tell me what you do first.",
    "Explain what you are doing.",
    "Say what you are about to do.",
    "Explain your steps.",
    "Before you call a tool, tell me why.",
    "Explain yourself first.",
)
_EXPLAIN_RULES = (
    "Before each tool call, explain to the user what you are about to do.",
    "Always tell the user what you do before you call a function.",
    "Write a short preamble before calling a tool.",
    "Explain what you are doing before using tools.",
)
_DECLINE = "Sorry, none of my tools can do that."


def request_and_tools(rng: Random, words: Words, held_out: bool, most: int) -> tuple[Request, list[Request]]:
    """A request, and requests for all the tools that are declared, itself among them."""

    def one() -> Request:
        make = stock_request if rng.random() < 0.7 else made_up_request
        return make(rng, words, held_out)

    wanted = one()
    found = {wanted.tool.name: wanted}
    for _ in range(rng.randrange(most)):
        other = one()
        if not any(_alike(other.tool.name, name) for name in found):
            found[other.tool.name] = other
    declared = list(found.values())
    rng.shuffle(declared)
    return wanted, declared


def _alike(one: str, other: str) -> bool:
    """Whether both may do the same, so that a request for one would fit the other."""

    def holds(name: str, group: str) -> bool:
        return any(word in name.lower() for word in group.split())

    return any(holds(one, group) and holds(other, group) for group in stock.lines("alike.txt"))


def arguments_of(request: Request) -> list[int]:
    return json_object([(f.name, v, f.json_type == "string") for f, v in request.arguments])


def thought(rng: Random, talk: Talk, request: Request) -> list[int]:
    """The analysis before a call; the more effort, the more of it."""
    name = Value(request.tool.name)
    if talk.effort == "low":
        return message("analysis", write("Call {f}.", {"f": name}))
    if talk.effort == "medium" or not request.arguments:
        return message(
            "analysis", write("The user needs a tool. {f} fits, so I should call it.", {"f": name})
        )
    body = write("The user needs a tool. I look at the tools that I have. {f} fits. Arguments:", {"f": name})
    for place, (field, value) in enumerate(request.arguments):
        body += write(f" {field.name} is {{v}}", {"v": value})
        body += write("." if place == len(request.arguments) - 1 else ",", {})
    return message("analysis", [*body, *write(" Now I call {f}.", {"f": name})])


def result_and_answer(rng: Random, words: Words, request: Request) -> tuple[str, list[int], str]:
    """What the tool returns, and the answer made of it, as tokens and text."""
    name = Value(request.tool.name)
    known = {str(place): value for place, (_, value) in enumerate(request.arguments)}
    roll = rng.random()
    separators = rng.choice(((", ", ": "), (",", ":")))

    def said(template: str, values: dict[str, Value]) -> tuple[list[int], str]:
        return write(template, values), plain(template, values)

    if request.answer is not None and roll < 0.5 and "0" in known:
        keys, sentence = request.answer
        pairs = {
            key: (rng.randrange(-20, 400) if place == 0 else words.lower()) for place, key in enumerate(keys)
        }
        values = {letter: Value(str(v), bare=False) for letter, v in zip("ab", pairs.values(), strict=False)}
        return json.dumps(pairs, separators=separators), *said(sentence, {**values, **known})
    if roll < 0.62:
        keys = tuple(dict.fromkeys(_key(rng, words) for _ in range(rng.choice((1, 2, 2, 3, 4)))))
        drawn: dict[str, str | int | float | bool] = {key: _result_value(rng, words) for key in keys}
        values = {"f": name}
        template = "Here is the result of {f}:"
        for place, (key, value) in enumerate(drawn.items()):
            values |= {
                f"k{place}": Value(key, bare=False),
                f"v{place}": Value(json.dumps(value, ensure_ascii=False).strip('"'), bare=False),
            }
            template += f"{',' if place else ''} {{k{place}}} {{v{place}}}"
        return json.dumps(drawn, separators=separators, ensure_ascii=False), *said(template + ".", values)
    if roll < 0.70:
        good = rng.choice(
            (
                '{"status": "ok"}',
                "ok",
                "OK",
                '{"success": true}',
                '{"ok":true}',
                "done",
                "success",
                "{}",
                '{"status":"ok"}',
                "Done.",
                "true",
                "null",
            )
        )
        return good, *said("Done: {f} was successful.", {"f": name})
    if roll < 0.76:
        problem = words.sentence()
        shown = rng.choice((json.dumps({"error": problem}, separators=separators), f"Error: {problem}"))
        return shown, *said("Sorry, {f} failed: {e}.", {"f": name, "e": found(shown, problem)})
    if roll < 0.84:
        items = [
            rng.choice((words.file, words.lower, words.capital, words.integer))()
            for _ in range(rng.choice((1, 2, 3)))
        ]
        values = {f"v{place}": Value(item, bare=False) for place, item in enumerate(items)}
        gaps = ", ".join(f"{{v{place}}}" for place in range(len(items)))
        return json.dumps(items, separators=separators), *said(
            "The result of {f} is {g}.".replace("{g}", gaps), {"f": name, **values}
        )
    text = _prose(rng, words)
    return text, *said("{f} says: {t}", {"f": name, "t": Value(text, bare=False)})


def _key(rng: Random, words: Words) -> str:
    usual = stock.lines("result_keys.txt")
    return (
        rng.choice(usual)
        if rng.random() < 0.6
        else words.lower() + (f"_{words.lower()}" if rng.random() < 0.2 else "")
    )


def _result_value(rng: Random, words: Words) -> str | int | float | bool:
    roll = rng.random()
    if roll < 0.4:
        return rng.choice((rng.randrange(-30, 100), rng.randrange(0, 100_000)))
    if roll < 0.5:
        return rng.randrange(0, 5000) / 10
    if roll < 0.55:
        return rng.random() < 0.5
    return rng.choice(
        (words.lower, words.place, words.sentence, words.identifier, words.date, words.file, words.query)
    )()


def _prose(rng: Random, words: Words) -> str:
    parts = []
    for _ in range(rng.choice((2, 4, 6, 10, 16))):
        parts.append(
            rng.choice((words.lower, words.lower, words.lower, words.capital, words.integer, words.decimal))()
        )
        if rng.random() < 0.12:
            parts[-1] += rng.choice((",", ".", ":", " C,", "%", " °C"))
    return " ".join(parts) + rng.choice(("", ".", ""))


def _open(rng: Random, talk: Talk, tools: list[FunctionTool], words: Words, rules: str | None = None) -> None:
    talk.open(a_date(rng), instructions=rules or instructions(rng, words), tools=tools)


def _call_turn(rng: Random, talk: Talk, request: Request, preamble: bool) -> None:
    call = function_call(Value(request.tool.name), arguments_of(request))
    before = [thought(rng, talk, request)]
    if preamble:
        before.append(
            message("commentary", write("I will call {f} for you.", {"f": Value(request.tool.name)}))
        )
    talk.turn(*before, call, kind="preamble" if preamble else "call")


def _result_turn(rng: Random, words: Words, talk: Talk, request: Request) -> None:
    result, body, text = result_and_answer(rng, words, request)
    talk.add(renderer().tool_result(f"functions.{request.tool.name}", result))
    before = (
        [message("analysis", write("I have the result. Now I answer.", {}))] if talk.effort == "high" else []
    )
    talk.turn(*before, answer(body), must=[text], kind="answer")


def _history(rng: Random, words: Words, talk: Talk, request: Request) -> None:
    """An earlier exchange as the server shows it: no reasoning, the call as sampled or as usual."""
    result, body, text = result_and_answer(rng, words, request)
    if rng.random() < 0.75:
        talk.user(request.text)
        talk.past(function_call(Value(request.tool.name), arguments_of(request)))
        talk.add(renderer().tool_result(f"functions.{request.tool.name}", result))
        talk.past(answer(body))
        return
    arguments = {
        f.name: v.text if f.json_type == "string" else json.loads(_number(v.text))
        for f, v in request.arguments
    }
    make = renderer()
    talk.user(request.text)
    separators = rng.choice(((", ", ": "), (",", ":")))
    talk.add(
        make.call(
            f"functions.{request.tool.name}", json.dumps(arguments, separators=separators, ensure_ascii=False)
        )
    )
    talk.add(make.tool_result(f"functions.{request.tool.name}", result), make.answer(text))


def _number(text: str) -> str:
    return text.lstrip("0") or "0" if text.isdigit() else text


def call_talk(rng: Random, words: Words, held_out: bool, most: int = 4) -> Talk:
    """One request, one call; mostly the tool's result and the answer as well."""
    request, requests = request_and_tools(rng, words, held_out, most)
    tools = [one.tool for one in requests]
    explain = rng.random() < 0.14
    talk = Talk("preamble" if explain else "call", an_effort(rng))
    rules = choose(rng, _EXPLAIN_RULES, held_out) if explain and rng.random() < 0.5 else None
    _open(rng, talk, tools, words, rules)
    if rng.random() < 0.12:
        earlier_question(rng, talk, held_out)
    others = [one for one in requests if one is not request]
    for earlier in rng.sample(others, min(len(others), rng.choice((0, 0, 1, 2)))):
        _history(rng, words, talk, earlier)
    if rng.random() < 0.1:
        _history(rng, words, talk, request)
        request = _again(rng, words, held_out, request)
    text = request.text
    if explain and rules is None:
        text = f"{text.rstrip('.?!')}{'?' if text.endswith('?') else '.'} {choose(rng, _EXPLAIN, held_out)}"
    talk.user(text)
    _call_turn(rng, talk, request, explain)
    if rng.random() < 0.65:
        _result_turn(rng, words, talk, request)
    return talk


def bare_calls_talk(rng: Random, words: Words, held_out: bool) -> Talk:
    """A drill: nothing but declarations, requests and calls, so that most tokens are about arguments."""
    talk = Talk("drill")
    _, requests = request_and_tools(rng, words, held_out, 3)
    talk.add(renderer().developer(instructions=None, tools=[one.tool for one in requests]))
    rng.shuffle(requests)
    for request in requests:
        talk.user(request.text)
        talk.turn(function_call(Value(request.tool.name), arguments_of(request)), kind="call")
    return talk


def _again(rng: Random, words: Words, held_out: bool, request: Request) -> Request:
    """The same tool once more with another value: "and in Oslo?"."""
    strings = [
        (f, v)
        for f, v in request.arguments
        if f.kind in ("city", "person", "query", "name", "title", "file", "path")
    ]
    if len(strings) != 1 or len(request.arguments) != 1:
        return request
    field, _ = strings[0]
    value = words.draw(field.kind)
    text = (
        f"And {'in ' if field.kind == 'city' else ''}{value}?" if rng.random() < 0.7 else f"Now for {value}"
    )
    return Request(request.tool, text, ((field, Value(value)),), request.answer)


def decline_talk(rng: Random, words: Words, held_out: bool, most: int = 4) -> Talk:
    """A request that no declared tool can serve, or an everyday question beside tools."""
    request, requests = request_and_tools(rng, words, held_out, most)
    tools = [one.tool for one in requests]
    talk = Talk("decline", an_effort(rng))
    others = [tool for tool in tools if tool.name != request.tool.name]
    if not others or rng.random() < 0.45:
        _open(rng, talk, tools, words)
        answer_everyday(rng, talk, held_out)
        return talk
    _open(rng, talk, others, words)
    talk.user(request.text)
    thoughts = message("analysis", write(stock.thought("decline", talk.effort), {}))
    talk.turn(thoughts, answer(write(_DECLINE, {})), must=[_DECLINE], kind="decline")
    return talk
