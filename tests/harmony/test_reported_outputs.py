"""Malformed outputs of gpt-oss that were reported in public: what they mean here, and what the library does.

docs/complaints.md counts them. A row marked `made` was rebuilt from an error message; the others are quoted.
"""

from collections import Counter
from pathlib import Path

import openai_harmony
import pytest

from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.harmony.recipients import Recipients
from tests.doubles.harmony.decoding import check_invariants, decode, messages_of

ENCODING = load_encoding()
ISSUE = "https://github.com/"
FUNCTIONS = frozenset({"create_event", "get_weather", "run", "web-browsing", "Write"})
DECLARED = Recipients(FUNCTIONS, builtin=frozenset({"python"}))
NEXT = "<|end|><|start|>assistant"
HI = f"{NEXT}<|channel|>final<|message|>Hi.<|return|>"
THOUGHT = f"<|channel|>analysis<|message|>Hm.{NEXT}"
CALL = "<|channel|>commentary to=functions.get_weather"
WEATHER = ("functions.get_weather", "{}")

# Where it was reported; the completion; the messages that it means: a channel or a recipient, and a text.
# fmt: off
REPORTED: tuple[tuple[str, str, list[tuple[str, str]]], ...] = (
    ("openai/harmony/issues/38 made", "<|channel|>analysis ––commentary<|message|>Hm." + HI,
     [("analysis", "Hm."), ("final", "Hi.")]),
    ("sgl-project/sglang/pull/35299", f"{CALL} to=functions.get_weather<|message|>{{}}<|call|>", [WEATHER]),
    ("vllm-project/vllm/issues/51977 made",
     "<|channel|>commentary json to=functions.web-browsing<|message|>{}<|call|>",
     [("functions.web-browsing", "{}")]),
    ("vllm-project/vllm/issues/22519 made",
     "<|channel|>analysis<|message|>Hm.<|end|>commentary to=functions.get_weather json<|message|>{}<|call|>",
     [("analysis", "Hm."), WEATHER]),
    ("vllm-project/vllm/issues/22519 made",
     "<|channel|>analysis<|message|>Hm.<|end|><|end|><|start|>assistant<|channel|>final<|message|>Hi.<|return|>",
     [("analysis", "Hm."), ("final", "Hi.")]),
    ("vllm-project/vllm/issues/22519 made", "<|channel|>final<|message|>Hi.<|end|><|return|>",
     [("final", "Hi.")]),
    ("vllm-project/vllm/pull/42454", "<|channel|>commentary to=get_weather json<|message|>{}<|call|>",
     [WEATHER]),
    ("vllm-project/vllm/pull/42454",
     "<|channel|>comment to=functions.get_weather json<|message|>{}<|call|>", [WEATHER]),
    ("vllm-project/vllm/pull/42454", f"{CALL.replace('commentary', 'analysis')} json<|message|>{{}}<|call|>",
     [WEATHER]),
    ("sgl-project/sglang/pull/10576", f"{CALL} json<|message|>{{}}<|return|>", [WEATHER]),
    ("openai/harmony/issues/48 made", "<|channel|><|message|>Hi.<|return|>", [("final", "Hi.")]),
    ("ggml-org/llama.cpp/issues/27720", "<|channel|>??" + HI, [("final", "??"), ("final", "Hi.")]),
    ("ggml-org/llama.cpp/issues/27720", "<|channel|>commentary 2?" + HI,
     [("commentary", "2?"), ("final", "Hi.")]),
    ("ggml-org/llama.cpp/issues/27720", "<|channel|>commentary?commentary?" + HI,
     [("commentary", "?commentary?"), ("final", "Hi.")]),
    ("ggml-org/llama.cpp/issues/27720",
     "<|channel|>commentary to=assistant<|channel|>commentary?" + HI,
     [("commentary", "?"), ("final", "Hi.")]),
    ("ggml-org/llama.cpp/issues/25321 made", '{"answer": 4}<|return|>', [("final", '{"answer": 4}')]),
    ("ggml-org/llama.cpp/pull/18675", "<|channel|>", []),
    ("ollama/ollama/issues/12132",
     " to=functions.create_event<|channel|>analysis <|constrain|>json<|message|>{}<|call|>",
     [("functions.create_event", "{}")]),
    ("ollama/ollama/issues/17638",
     '<|channel|>commentary to=functions.Write json<|message|>{"input": "a"}]<|call|>',
     [("functions.Write", '{"input": "a"}]')]),
    ("continuedev/continue/issues/10221",
     "<|channel|>commentary to=functions.run code<|message|>ls -R\n<|call|>", [("functions.run", "ls -R\n")]),
    ("lmstudio-ai/lmstudio-bug-tracker/issues/942", f'{CALL}<|constrain|>json<|message|>{{"data": {{}}',
     [("functions.get_weather", '{"data": {}')]),
    ("tilesprivacy/tiles/issues/145 made", f"{THOUGHT.removesuffix('assistant')}bash<|message|>ls<|end|>",
     [("analysis", "Hm."), ("final", "ls")]),
)
# fmt: on


def meant(completion: str) -> list[tuple[str, str]]:
    tokens = ENCODING.encode_special(completion)
    events = decode(ENCODING, tokens, DECLARED)
    check_invariants(ENCODING, tokens, events)
    return [(each.header.recipient or each.header.channel, each.text) for each in messages_of(events)]


@pytest.mark.parametrize(("source", "completion", "messages"), REPORTED)
def test_a_reported_output_has_its_meaning(
    source: str, completion: str, messages: list[tuple[str, str]]
) -> None:
    assert meant(completion) == messages, ISSUE + source


def library(completion: str, messages: list[tuple[str, str]], *, strict: bool) -> str:
    """What the library's parser makes of it: the same, something else, or an error."""
    parser = openai_harmony.StreamableParser(ENCODING.library, openai_harmony.Role.ASSISTANT, strict=strict)
    try:
        for token in ENCODING.encode_special(completion):
            parser.process(token)
        parser.process_eos()
    except openai_harmony.HarmonyError:
        return "error"
    read = [(each.recipient or each.channel, each.content[0].text) for each in parser.messages]
    return "same" if read == messages else "other"


def test_the_page_counts_what_the_library_makes_of_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "complaints.md").read_text(encoding="utf-8")
    for strict, name in ((True, "strict"), (False, "not strict")):
        made = Counter(library(completion, messages, strict=strict) for _, completion, messages in REPORTED)
        assert f"`, {name} | {made['same']} | {made['other']} | {made['error']} |" in page
    assert f"| gpt-oss-server | {len(REPORTED)} | 0 | 0 |" in page
    assert [source for source, _, _ in REPORTED if ISSUE + source.split()[0] not in page] == []
