"""Conversations about declared functions: choose one, call it, answer from its result, or decline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from gpt_oss_server.harmony.render import FunctionTool
from recipe.functions.tool_sets import in_turn, one_more_tool, some_tools
from recipe.functions.tool_stock import Offer, Request
from recipe.functions.tool_thoughts import choosing, declining
from recipe.skills.about_tools import about_tools
from recipe.skills.chat import a_date, an_effort, answer_everyday, earlier_question, instructions
from recipe.skills.follow_ups import again
from recipe.skills.tool_results import result_and_answer
from recipe.text.talk import (
    Talk,
    Value,
    answer,
    function_call,
    json_object,
    message,
    renderer,
    write,
)
from recipe.text.words import Words, choose

# The last of each list is for the held-out part.
_EXPLAIN = (
    "Tell me first what you will do.",
    "Describe what you do before you do it.",
    "Let me know what you are going to do.",
    "Say first which tool you take.",
    "First explain, then act.",
    "Give me a short explanation first.",
    "I want to hear what you do before you do it.",
    "Explain it before you start.",
    "Walk me through it.",
    "Tell me what you do first.",
    "Explain what you are doing.",
    "Say what you are about to do.",
    "Explain your steps.",
    "Before you call a tool, tell me why.",
    "Say in a few words what comes next.",
    "Tell me your plan first.",
    "Announce it before you do it.",
    "Comment on it first.",
    "Say why before you do it.",
    "Before anything happens, describe it.",
    "Narrate what you do.",
    "Give me a heads-up first.",
    "Keep me posted on what you do.",
    "Tell me beforehand what happens.",
    "Speak before you act.",
    "Please explain first.",
    "Describe your approach first.",
    "Let me hear your plan.",
    "Tell me which function you use.",
    "Explain this to me first.",
    "Talk me through it first.",
    "State what you do, then do it.",
    "Introduce what you are doing.",
    "Warn me before you call anything.",
    "Explain yourself first.",
)
_EXPLAIN_RULES = (
    "Before each tool call, explain to the user what you are about to do.",
    "Always tell the user what you do before you call a function.",
    "Write a short preamble before calling a tool.",
    "Explain what you are doing before using tools.",
)
# In training, of calls: how often the function was called before, and "And in Oslo?" means it again.
_CALLED_BEFORE, _FOLLOWED_UP, _FOLLOWED_UP_AT_ONCE = 0.35, 0.8, 0.3
_DECLINE = "Sorry, none of my tools can do that."


def arguments_of(request: Request) -> list[int]:
    return json_object([(f.name, v, f.json_type == "string") for f, v in request.arguments])


def open_with(
    rng: Random, talk: Talk, tools: list[FunctionTool], words: Words, rules: str | None = None
) -> None:
    talk.open(a_date(rng), instructions=rules or instructions(rng, words), tools=tools)


def call_turn(talk: Talk, request: Request, offers: Sequence[Offer], preamble: bool) -> None:
    call = function_call(Value(request.tool.name), arguments_of(request))
    before = [choosing(talk.effort, request, offers, talk.tokens)]
    if preamble:
        before.append(
            message("commentary", write("I will call {f} for you.", {"f": Value(request.tool.name)}))
        )
    talk.turn(*before, call, kind="preamble" if preamble else "call")


def result_turn(rng: Random, words: Words, talk: Talk, request: Request) -> None:
    result, body, text = result_and_answer(rng, words, request)
    talk.add(renderer().tool_result(f"functions.{request.tool.name}", result))
    before = (
        [message("analysis", write("I have the result. Now I answer.", {}))] if talk.effort == "high" else []
    )
    talk.turn(*before, answer(body), must=[text], kind="answer")


def history(rng: Random, words: Words, talk: Talk, request: Request, *, practised: bool = True) -> None:
    """An earlier exchange in the server's form: no reasoning, the call as sampled or as rendered."""
    result, body, text = result_and_answer(rng, words, request)
    if rng.random() < 0.75:
        talk.user(request.text)
        talk.past(function_call(Value(request.tool.name), arguments_of(request)), practised=False)
        talk.add(renderer().tool_result(f"functions.{request.tool.name}", result))
        talk.past(answer(body), practised=practised)
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
    offers = some_tools(rng, words, held_out, most)
    wanted = rng.choice(offers)
    request = wanted.request()
    explain = rng.random() < 0.14
    talk = Talk("preamble" if explain else "call", an_effort(rng))
    rules = choose(rng, _EXPLAIN_RULES, held_out) if explain and rng.random() < 0.5 else None
    open_with(rng, talk, [one.tool for one in offers], words, rules)
    if rng.random() < 0.12:
        earlier_question(rng, talk, held_out)
    others = [one for one in offers if one is not wanted]
    for earlier in rng.sample(others, min(len(others), rng.choice((0, 0, 1, 2)))):
        history(rng, words, talk, earlier.request())
    if rng.random() < (0.1 if words.plain else _CALLED_BEFORE):
        history(rng, words, talk, request)
        once_more = rng.random() < (0.5 if words.plain else _FOLLOWED_UP)
        request = (again(rng, words, request) or request) if once_more else wanted.request()
    request = ask(rng, talk, request, held_out, explain and rules is None)
    call_turn(talk, request, offers, explain)
    if rng.random() < 0.65:
        result_turn(rng, words, talk, request)
    return talk


def ask(rng: Random, talk: Talk, request: Request, held_out: bool, explain: bool) -> Request:
    """Adds the user's message, with the wish for an explanation if `explain`; returns the sent request."""
    text = request.text
    if explain:
        text = (
            f"{text.rstrip('.?!')}{'?' if text.endswith('?') else '.'} {choose(rng, _EXPLAIN, held_out, 1)}"
        )
    talk.user(text)
    return replace(request, text=text)


def busy_talk(rng: Random, words: Words, held_out: bool, most: int = 4) -> Talk:
    """Many requests for the same tools in a row, all of them practised: efficient, since most tokens teach.

    No server shows the reasoning of earlier turns, so this is only for training.
    """
    offers = some_tools(rng, words, held_out, most)
    talk = Talk("busy", rng.choice(("low", "medium", "medium", "medium", "high")))
    open_with(rng, talk, [one.tool for one in offers], words)
    wanted = in_turn(rng, offers)
    called: Request | None = None
    for _ in range(rng.randrange(4, 9)):
        roll = rng.random()
        if roll < 0.06:
            answer_everyday(rng, talk, held_out)
        elif roll < 0.12:
            about_tools(rng, talk, offers, held_out)
        elif roll < 0.24:
            _decline(rng, words, held_out, talk, offers)
        else:
            followed_up = None
            if called is not None and rng.random() < _FOLLOWED_UP_AT_ONCE:
                followed_up = again(rng, words, called)
            request = followed_up or next(wanted).request()
            explain = rng.random() < 0.08
            request = ask(rng, talk, request, held_out, explain)
            call_turn(talk, request, offers, explain)
            called = request
            if rng.random() < 0.2:
                result_turn(rng, words, talk, request)
        if len(talk.tokens) > 700:
            break
    return talk


def decline_talk(rng: Random, words: Words, held_out: bool, most: int = 4) -> Talk:
    """A request that no declared tool can serve, or an everyday question despite tools."""
    offers = some_tools(rng, words, held_out, most)
    talk = Talk("decline", an_effort(rng))
    open_with(rng, talk, [one.tool for one in offers], words)
    roll = rng.random()
    if roll < 0.15:
        about_tools(rng, talk, offers, held_out)
        return talk
    if roll < 0.45:
        answer_everyday(rng, talk, held_out)
        return talk
    _decline(rng, words, held_out, talk, offers)
    return talk


def _decline(rng: Random, words: Words, held_out: bool, talk: Talk, offers: Sequence[Offer]) -> None:
    request = one_more_tool(rng, words, held_out, offers).request()
    talk.user(request.text)
    decline(talk, offers)


def decline(talk: Talk, offers: Sequence[Offer]) -> None:
    """Adds the turn in which no declared function fits."""
    talk.turn(declining(talk.effort, offers), answer(write(_DECLINE, {})), must=[_DECLINE], kind="decline")
