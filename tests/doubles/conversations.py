"""Random completions: legal ones, and mutations that a model should never write."""

import random

from gpt_oss_server.harmony.encoding import Encoding

_TEXTS = (
    "",
    "Hello!",
    "Let me think about this for a moment, step by step.",
    "naïve café 東京 🧠👩‍🚀 — done",
    'He said "no".\nThen he left.\t\x00',
    "<b>1 < 2 && 3 > 2</b> <|fake|>",
    "a" * 40,
    "\ud83e\udde0".encode("utf-16", "surrogatepass").decode("utf-16"),
)
_ARGUMENTS = ("{}", '{"city":"Oslo"}', '{"city": "東京", "n": 3}', "not json {", "")
_CALLS = (
    "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
    " to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>",
    "<|channel|>commentary to=functions.f json<|message|>{}<|call|>",
    "<|channel|>analysis to=functions.unknown code<|message|>{}<|call|>",
    "<|channel|>commentary to=other.thing <|constrain|>json<|message|>{}<|call|>",
)
_NEXT = "<|start|>assistant"
_FIRST_SPECIAL, _LAST_SPECIAL = 199_998, 201_087


def legal_completion(rng: random.Random) -> str:
    """Reasoning, preambles, and an answer or a call, in any legal order."""
    messages = []
    for _ in range(rng.randrange(3)):
        channel = rng.choice(("analysis", "analysis", "commentary"))
        messages.append(f"<|channel|>{channel}<|message|>{rng.choice(_TEXTS)}<|end|>")
    if rng.random() < 0.4:
        # Not str.format, as the templates contain JSON's braces.
        messages.append(rng.choice(_CALLS).replace("{}", rng.choice(_ARGUMENTS)))
    else:
        constrain = rng.choice(("", "", " <|constrain|>json"))
        messages.append(f"<|channel|>final{constrain}<|message|>{rng.choice(_TEXTS)}<|return|>")
    return _NEXT.join(messages)


def mutated(tokens: list[int], rng: random.Random) -> list[int]:
    tokens = list(tokens)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(tokens)) if tokens else 0
        match rng.randrange(6):
            case 0 if tokens:
                del tokens[at]
            case 1 if tokens:
                tokens.insert(at, tokens[at])
            case 2 if len(tokens) > 1:
                other = rng.randrange(len(tokens))
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case 3:
                tokens.insert(at, rng.randrange(_FIRST_SPECIAL, _LAST_SPECIAL + 1))
            case 4:
                tokens.insert(at, rng.randrange(200_000))
            case _:
                tokens.insert(at, rng.choice((200002, 200003, 200005, 200006, 200007, 200008, 200012)))
    return tokens


def encoded(encoding: Encoding, rng: random.Random) -> list[int]:
    return encoding.encode_special(legal_completion(rng))
