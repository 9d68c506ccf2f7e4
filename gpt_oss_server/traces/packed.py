"""The record of an ended response as compressed bytes, for a store that outlives the process.

The stored response is not kept twice, as the history is not (`traces/prompts`).
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gpt_oss_server.harmony.recipients import Recipients
from gpt_oss_server.stores.sealing import packed_tokens, unpacked_tokens
from gpt_oss_server.stores.sql.codec import pack, unpack
from gpt_oss_server.traces.prompts import TracedPrompt
from gpt_oss_server.traces.records import TokenRecord, TraceRecord
from gpt_oss_server.turns.transcript import ToolRun
from gpt_oss_server.turns.watch import GenerationSpan

_FASTEST = 1


def packed(record: TraceRecord, origin: Mapping[str, Any]) -> bytes:
    """The record must be finished."""
    assert record.ended is not None
    kept, prompt = record.ended, record.ended.prompt
    head = {
        "request": record.request,
        "functions": sorted(record.recipients.functions),
        "builtin": sorted(record.recipients.builtin),
        "began": record.began,
        "origin": origin,
        "generations": [asdict(span) for span in kept.generations],
        "tool_runs": [asdict(run) for run in kept.tool_runs],
        "scores": list(kept.scores.items()),
        "alternatives": list(kept.alternatives.items()),
        "warnings": kept.warnings,
        "history": (prompt.first, prompt.end, prompt.reasoning_from),
    }
    tokens = (kept.tokens, prompt.before, prompt.after)
    return zlib.compress(pack((json.dumps(head).encode("ascii"), *map(packed_tokens, tokens))), _FASTEST)


def unpacked(body: bytes, response: Mapping[str, Any]) -> TraceRecord:
    encoded, *parts = unpack(zlib.decompress(body))
    head, arrays = json.loads(encoded), [unpacked_tokens(part) for part in parts]
    if "history" in head:
        tokens, before, after = arrays
        prompt = TracedPrompt(before, after, *head["history"])
    else:  # a version that stored the whole prompt wrote it
        prompt, tokens = TracedPrompt(arrays[0]), arrays[1]
    ended = TokenRecord(
        prompt,
        tokens,
        tuple(GenerationSpan(**span) for span in head["generations"]),
        tuple(ToolRun(**run) for run in head["tool_runs"]),
        dict(head["scores"]),
        {place: tuple((token, score) for token, score in top) for place, top in head["alternatives"]},
        tuple((kind, detail) for kind, detail in head["warnings"]),
    )
    may_call = head["request"].get("tool_choice") != "none"
    recipients = Recipients(frozenset(head["functions"]), frozenset(head["builtin"]), may_call)
    return TraceRecord(head["request"], response, recipients, None, ended, head["began"], head["origin"])
