"""A turn's debug metadata for the client, and its slips and texts for the log."""

from __future__ import annotations

import json
import logging

from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.turns.logprobs import LEAST
from gpt_oss_server.turns.transcript import Transcript

_log = logging.getLogger(__name__)
_MOST_SLIPS = 100


def debug_metadata(encoding: Encoding, transcript: Transcript) -> dict[str, str]:
    """Texts, as all metadata; lists are JSON. A token that was not sampled here has no log-probability."""
    prompt = encoding.decode(transcript.prompt)
    output = encoding.decode(transcript.tokens)
    # Bounded: a broken model can slip at every token.
    slips = [{"kind": slip.kind, "detail": slip.detail} for slip in transcript.slips[:_MOST_SLIPS]]
    return {
        "__debug": prompt + output,
        "__debug_input": prompt,
        "__debug_output": output,
        "__debug_input_ids": json.dumps(list(transcript.prompt)),
        "__debug_output_ids": json.dumps(transcript.tokens),
        "__debug_output_logprobs": json.dumps(_scores(transcript)),
        "__debug_warnings": json.dumps(slips, ensure_ascii=False),
    }


def _scores(transcript: Transcript) -> list[float | None]:
    found = (transcript.scores.get(place) for place in range(len(transcript.tokens)))
    return [None if score is None else max(score, LEAST) for score in found]


def log_turn(name: str, encoding: Encoding, transcript: Transcript, *, with_text: bool) -> None:
    if transcript.slips:
        kinds = ", ".join(sorted({slip.kind for slip in transcript.slips}))
        _log.info("%s: the model departed from Harmony (%s); nothing was lost.", name, kinds)
    if with_text:
        _log.info("%s prompt: %s", name, encoding.decode(transcript.prompt))
        _log.info("%s output: %s", name, encoding.decode(transcript.tokens))
