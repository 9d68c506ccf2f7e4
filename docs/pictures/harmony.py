"""The pictures of docs/harmony.md: a turn, the next one, a tool call, a slip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from docs.pictures.strips import Message, Rule, Strips, messages_of
from docs.pictures.turns import embedded, scripted
from gpt_oss_server.harmony.encoding import END, START

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
# As gpt-oss does at times: the recipient lacks its namespace, and the call ends as a text does.
SLIP = (
    "<|channel|>analysis<|message|>I need the weather.<|end|>"
    "<|start|>assistant to=get_weather<|channel|>commentary json<|message|>"
    '{"city": "Oslo"}<|end|>'
)


def pictures() -> dict[str, str]:
    """The SVG text of each picture, by its file's name."""
    drawn: dict[str, str] = {}
    with embedded() as server:
        first = server.response(input="Who are you?")
        second = server.response(input="What is Harmony?", previous_response_id=first["id"])
        one, two = server.trace(first), server.trace(second)
        call = server.response(input="What is the weather in Oslo?", tools=[WEATHER])
        output = {
            "type": "function_call_output",
            "call_id": call["output"][-1]["call_id"],
            "output": "18 °C, sunny",
        }
        answer = server.response(input=[output], previous_response_id=call["id"], tools=[WEATHER])
        asked, answered = server.trace(call), server.trace(answer)
        items = [{"role": "user", "content": "What is the weather in Oslo?"}, *call["output"], output]
        again = server.trace(server.response(input=items, tools=[WEATHER]))
    with scripted(SLIP) as server:
        slipped = server.trace(server.response(input="What is the weather in Oslo?", tools=[WEATHER]))
    drawn["turn"] = _turn(one)
    drawn["next-turn"] = _next_turn(one, two)
    drawn["call"] = _call(asked, answered)
    drawn["slip"] = _slip(slipped)
    drawn["same-text"] = _same_text(asked, again)
    return drawn


def _turn(trace: Any) -> str:
    prompt, sampled = _tokens(trace)
    strips = Strips(
        _spelling(trace),
        "One turn as tokens",
        "The prompt: a system message, the user's question and the beginning of the model's turn. "
        "Then the sampled tokens: a message in the channel analysis, and the answer in the channel final.",
    )
    return strips.add(
        Rule(f"The prompt: {len(prompt)} tokens, written by the server"),
        *messages_of(prompt),
        Rule(f"The completion: {len(sampled)} tokens, sampled by the model"),
        *messages_of(sampled),
    ).drawn()


def _next_turn(one: Any, two: Any) -> str:
    prompt, sampled = _tokens(one)
    later, _ = _tokens(two)
    cue = messages_of(prompt)[-1].tokens
    thought, answer = (message.tokens for message in messages_of((*cue, *sampled)))
    known = (*prompt[: -len(cue)], *answer[:-1], END)
    assert later[: len(known)] == known
    strips = Strips(
        _spelling(one, two),
        "What the next turn reads",
        "The tokens of the first turn again, without its analysis message, which is drawn pale; "
        "then the user's next question and the beginning of the model's turn.",
    )
    return strips.add(
        Rule("From the first turn: the tokens that were read and sampled"),
        *messages_of(prompt)[:-1],
        Message(thought, faded=True, note="The answer is given: the next prompt leaves its analysis out."),
        Message(
            messages_of(known)[-1].tokens,
            note="The end of the turn, <|return|>, is an ordinary <|end|> from now on.",
        ),
        Rule(f"New in the second turn's prompt, which has {len(later)} tokens"),
        *messages_of(later[len(known) :]),
    ).drawn()


def _call(asked: Any, answered: Any) -> str:
    prompt, sampled = _tokens(asked)
    later, last = _tokens(answered)
    strips = Strips(
        _spelling(asked, answered),
        "A tool call as tokens",
        "The model writes a message to functions.get_weather and stops with the token call. The server "
        "appends the function's result as a message of the tool; the model reads it and answers.",
    )
    before = (*prompt, *sampled)
    assert later[: len(before)] == before
    return strips.add(
        Rule("The model calls the function, and stops"),
        *messages_of(prompt)[-2:-1],
        *messages_of((*messages_of(prompt)[-1].tokens, *sampled)),
        Rule("The server appends the result, and the model continues"),
        *messages_of(later[len(before) :])[:-1],
        *messages_of((*messages_of(later)[-1].tokens, *last)),
    ).drawn()


def _same_text(asked: Any, again: Any) -> str:
    sampled = messages_of(_tokens(asked)[1])[-1]
    rendered = messages_of(_tokens(again)[0])[-3]
    spell = _spelling(asked, again)
    assert _text(sampled, spell) == _text(rendered, spell)
    assert sampled != rendered
    strips = Strips(
        spell,
        "One text, two rows of tokens",
        "The call as the model sampled it, and the same call made from its text: two of the tokens differ.",
    )
    return strips.add(
        Rule(f"The call as the model sampled it: {len(sampled.tokens)} tokens"),
        sampled,
        Rule(f"The same text, tokenised again: {len(rendered.tokens)} tokens"),
        rendered,
    ).drawn()


def _text(message: Message, spell: Callable[[int], str]) -> str:
    return "".join(map(spell, message.tokens))


def _slip(trace: Any) -> str:
    _, sampled = _tokens(trace)
    slips = trace["responses"][0]["generations"][0]["slips"]
    item = trace["responses"][0]["response"]["output"][-1]
    assert item["type"] == "function_call"
    strips = Strips(
        _spelling(trace),
        "A slip and its result",
        "A call whose recipient lacks its namespace and whose last token is end. The server reads the call.",
    )
    messages = messages_of(sampled)
    details = tuple(f"{slip['kind']}: {slip['detail']}" for slip in slips)
    return strips.add(
        Rule("What the model sampled"),
        messages[0],
        Message(messages[1].tokens, slips=details),
        Rule(f"What the client gets: a function_call of {item['name']} with {item['arguments']}"),
    ).drawn()


def _tokens(trace: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The prompt and the completion of a response that had one generation."""
    [response] = trace["responses"]
    [generation] = response["generations"]
    assert START in response["prompt"]
    return tuple(response["prompt"]), tuple(generation["tokens"])


def _spelling(*traces: Any) -> Callable[[int], str]:
    texts = {int(token): text for trace in traces for token, text in trace["vocabulary"].items()}
    return lambda token: texts[token] if isinstance(texts[token], str) else "�"
