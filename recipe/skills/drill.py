"""Short drills in copying, without system messages, which form the circuits early and cheaply.

The user writes a few unseen words, and the model repeats them: unchanged, in quotes, or as JSON by name.
"""

from __future__ import annotations

from random import Random

from recipe.text.talk import Talk, Value, answer, json_object, write
from recipe.text.words import Words

_KINDS = ("word", "name", "query", "title", "person", "city", "file", "id", "int", "email", "date", "float")


def drill_talk(rng: Random, words: Words, held_out: bool) -> Talk:
    talk = Talk("drill")
    style = rng.choice((0, 1, 1, 1, 2, 3))
    # Half of the drills have words that split into pieces, which are rare elsewhere.
    kinds = ("split",) if rng.random() < 0.5 else _KINDS
    values = [words.draw(rng.choice(kinds)) for _ in range(rng.randrange(2, 7))]
    marks = ['"' if rng.random() < 0.3 else "" for _ in values]
    if style == 0:
        talk.user("Say " + " ".join(values))
        gaps = " ".join(f"{{v{place}}}" for place in range(len(values)))
        filled = {f"v{place}": Value(value) for place, value in enumerate(values)}
        talk.turn(answer(write("It is " + gaps, filled)), kind="say")
        return talk
    if style == 1:
        talk.user(
            "Quote " + " and ".join(f"{mark}{value}{mark}" for value, mark in zip(values, marks, strict=True))
        )
        gaps = " and ".join(f'"{{v{place}}}"' for place in range(len(values)))
        filled = {
            f"v{place}": Value(v, bare=not m) for place, (v, m) in enumerate(zip(values, marks, strict=True))
        }
        talk.turn(answer(write("It is " + gaps, filled)), kind="quote")
        return talk
    names = list(dict.fromkeys(words.lower() for _ in values))
    fields = list(zip(names, values, marks, strict=False))
    shown = [f"{name} {mark}{value}{mark}" for name, value, mark in fields]
    order = list(range(len(fields)))
    if style == 3:
        rng.shuffle(shown)
    talk.user(
        "\n".join(fields[place][0] for place in order) + "\n\n" + rng.choice((", ", " and ")).join(shown)
    )
    body = json_object([(name, Value(value, bare=not mark), True) for name, value, mark in fields])
    talk.turn(answer(body), kind="in order" if style == 2 else "by name")
    return talk
