"""The page of the script format: the keys with their texts, and an example that is a valid script."""

from __future__ import annotations

from generate_pages.markdown import NOTE, code, json_block, table
from gpt_oss_server.harmony.encoding import VOCABULARY_SIZE
from inference.backends.script_file import SCRIPT_KEYS, SECONDS, TURN_KEYS, parse_script

_EXAMPLE = {
    "turns": [
        {"when": "weather", "text": "<|channel|>final<|message|>It is sunny.<|return|>"},
        "<|channel|>analysis<|message|>A greeting.<|end|><|start|>assistant"
        "<|channel|>final<|message|>Hello!<|return|>",
        {"tokens": [200005, 17196, 200008, 13225, 0, 200002]},
    ],
    "loop": True,
    "tokens_per_second": 50,
}
_HEAD = f"""{NOTE}
# Script format

`--model scripted:FILE` answers with prepared texts instead of a model's: for demos, for tests of clients, and
to replay a [trace](../traces.md), which is a script too. The file is JSON, checked in full at the start.

"""
_END = f"""
Turns without `when` answer in their order, whatever the prompt is. A turn whose `when` is found in the prompt
goes first; of several, the first. The prompt is searched as text, special tokens included, for at most
{SECONDS:g} seconds. An answer ends at its first stop token, at its end, or at the request's limit. Sampling
fields have no effect.

The repository has a longer script: [examples/script.json](../../examples/script.json).
"""


def script_page() -> str:
    parse_script(_EXAMPLE, VOCABULARY_SIZE)
    keys = table(("key", "meaning"), [(code(key), text) for key, text in SCRIPT_KEYS.items()])
    turns = table(("key of a turn", "meaning"), [(code(key), text) for key, text in TURN_KEYS.items()])
    return f"{_HEAD}{json_block(_EXAMPLE)}\n{keys}\n{turns}{_END}"
