"""Turns that the grammar must accept, and a function that runs it over a text."""

from __future__ import annotations

from gpt_oss_server.constraints.grammar import ANY_OBJECT, Callee, JsonBody
from gpt_oss_server.constraints.matcher import CompiledGrammar
from gpt_oss_server.harmony.decoder import Recipients
from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.harmony.sampling import allowed

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = (
    Callee("functions.get", ANY_OBJECT),
    Callee("functions.get_city", JsonBody(CITY)),
    Callee("browser.search", ANY_OBJECT, ("analysis", "commentary"), ("code", "json")),
    Callee("python", None, ("analysis", "commentary"), ("code",)),
)
KNOWN = Recipients(frozenset({"get", "get_city"}), frozenset({"browser.search", "python"}))
REASONING = "<|channel|>analysis<|message|>Thinking of 東京 🧠.\n\nDone<|end|><|start|>assistant"
PREAMBLE = "<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant"

LEGAL = [
    "<|channel|>final<|message|>Hello 東京 🧠<|return|>",
    "<|channel|>final<|message|><|return|>",
    "<|channel|>commentary to=functions.get <|constrain|>json<|message|>{}<|call|>",
    '<|channel|>commentary to=functions.get<|constrain|>json<|message|>{"a": [1, "东"]}<|call|>',
    '<|channel|>commentary to=functions.get json<|message|>{"a":1}<|call|>',
    '<|channel|>commentary to=functions.get<|message|>{"a":1}<|call|>',
    ' to=functions.get<|channel|>commentary <|constrain|>json<|message|>{\n  "a": 1\n}<|call|>',
    ' to=functions.get_city<|channel|>commentary json<|message|>{"city":"東京"}<|call|>',
    '<|channel|>analysis to=browser.search code<|message|>{"query":"x"}<|call|>',
    '<|channel|>commentary to=browser.search <|constrain|>json<|message|>{"query":"x"}<|call|>',
    "<|channel|>analysis to=python code<|message|>print('hi')\n<|call|>",
    " to=python<|channel|>commentary code<|message|>1+1<|call|>",
]


def passes(encoding: Encoding, grammar: CompiledGrammar, text: str) -> bool:
    state = grammar.start()
    for token in encoding.encode_special(text):
        if not allowed(state.mask())[token]:
            return False
        state.accept(token)
    return state.is_accepting()
