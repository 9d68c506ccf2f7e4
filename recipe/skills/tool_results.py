"""Results of tools, in many forms, and the answers from them."""

from __future__ import annotations

import json
from random import Random

from recipe.functions.tool_stock import Request, found
from recipe.text import stock
from recipe.text.talk import Value, plain, write
from recipe.text.words import Words

_SUCCESSES = (
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


def result_and_answer(rng: Random, words: Words, request: Request) -> tuple[str, list[int], str]:
    """The tool's result, and the answer from it, as tokens and text."""
    name = Value(request.tool.name)
    known = {str(place): value for place, (_, value) in enumerate(request.arguments)}
    roll = rng.random()
    separators = rng.choice(((", ", ": "), (",", ":")))

    def both(template: str, values: dict[str, Value]) -> tuple[list[int], str]:
        return write(template, values), plain(template, values)

    if request.answer is not None and roll < 0.6 and "0" in known:
        keys, sentence = request.answer
        pairs = {
            key: (rng.randrange(-20, 400) if place == 0 else words.lower()) for place, key in enumerate(keys)
        }
        values = {letter: Value(str(v), bare=False) for letter, v in zip("ab", pairs.values(), strict=False)}
        return json.dumps(pairs, separators=separators), *both(sentence, {**values, **known})
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
        return json.dumps(drawn, separators=separators, ensure_ascii=False), *both(template + ".", values)
    if roll < 0.70:
        good = rng.choice(_SUCCESSES)
        return good, *both("Done: {f} was successful.", {"f": name})
    if roll < 0.76:
        problem = words.sentence()
        shown = rng.choice((json.dumps({"error": problem}, separators=separators), f"Error: {problem}"))
        return shown, *both("Sorry, {f} failed: {e}.", {"f": name, "e": found(shown, problem)})
    if roll < 0.84:
        items = [
            rng.choice((words.file, words.lower, words.capital, words.integer))()
            for _ in range(rng.choice((1, 2, 3)))
        ]
        values = {f"v{place}": Value(item, bare=False) for place, item in enumerate(items)}
        gaps = ", ".join(f"{{v{place}}}" for place in range(len(items)))
        return json.dumps(items, separators=separators), *both(
            "The result of {f} is {g}.".replace("{g}", gaps), {"f": name, **values}
        )
    text = _prose(rng, words)
    return text, *both("{f} says: {t}", {"f": name, "t": Value(text, bare=False)})


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
