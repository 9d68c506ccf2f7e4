"""Drills in parts of a call: its arguments without a choice, and the choice of the tool alone."""

from __future__ import annotations

from random import Random

from recipe.functions.restating import restated, takes_something
from recipe.functions.tool_sets import in_turn, one_more_tool, some_tools
from recipe.functions.tool_thoughts import choice, declining
from recipe.skills.calls import arguments_of, history, open_with
from recipe.skills.follow_ups import again
from recipe.text.talk import Talk, Value, function_call, message, renderer, tokens_of
from recipe.text.words import Words

_NOTHING_BUT_MADE_UP = 0.6  # of the drills in arguments have only such tools


def bare_calls_talk(rng: Random, words: Words, held_out: bool) -> Talk:
    """A drill of declarations, requests and their values for calls, and nothing else."""
    talk = Talk("drill")
    made_up = 1.0 if rng.random() < _NOTHING_BUT_MADE_UP else None
    offers = some_tools(rng, words, held_out, 3, made_up)
    offers = [offer for offer in offers if takes_something(offer.tool)]
    if not offers:
        return bare_calls_talk(rng, words, held_out)
    talk.add(renderer().developer(instructions=None, tools=[one.tool for one in offers]))
    wanted = in_turn(rng, offers)
    for _ in range(rng.randrange(3, 7)):
        request = next(wanted).request()
        talk.user(request.text)
        call = function_call(Value(request.tool.name), arguments_of(request))
        talk.turn(message("analysis", [*tokens_of("Request"), *restated(request)]), call, kind="call")
    return talk


def choices_talk(rng: Random, words: Words, held_out: bool) -> Talk:
    """A drill in choosing among several tools, or none, which fails most often."""
    made_up = rng.choice((None, None, None, 1.0))
    offers = some_tools(rng, words, held_out, 8, made_up)
    talk = Talk("drill", rng.choice(("low", "medium")))
    open_with(rng, talk, [one.tool for one in offers], words)
    wanted = in_turn(rng, offers)
    for _ in range(rng.randrange(5, 8) + len(offers) // 3):
        if rng.random() < 0.22:
            unserved = one_more_tool(rng, words, held_out, offers, made_up).request()
            talk.user(unserved.text)
            talk.turn(declining(talk.effort, offers), kind="no choice")
        else:
            request = next(wanted).request()
            talk.user(request.text)
            _think(talk, choice(talk.effort, request, offers), "choice")
    return talk


def follow_ups_talk(rng: Random, words: Words, held_out: bool) -> Talk:
    """A drill in telling "And in Oslo?" apart from a new request, after a call."""
    offers = some_tools(rng, words, held_out, 6)
    talk = Talk("drill", rng.choice(("low", "medium")))
    open_with(rng, talk, [one.tool for one in offers], words)
    wanted = in_turn(rng, offers)
    for _ in range(rng.randrange(4, 8)):
        before = next(wanted).request()
        request = again(rng, words, before) or next(wanted).request()
        # A past answer has another end token than a present one; practising so many would make it the rule.
        history(rng, words, talk, before, practised=False)
        talk.user(request.text)
        thought = choice(talk.effort, request, offers, talk.tokens)
        _think(talk, thought, "once more" if request.again else "choice")
    return talk


def _think(talk: Talk, thought: list[int], kind: str) -> None:
    """Adds the thought without its end, so that most tokens are about the choice."""
    talk.turn(message("analysis", thought)[:-1], kind=kind)
