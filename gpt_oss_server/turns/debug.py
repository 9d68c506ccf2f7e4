"""A turn's debug metadata for the client, and its slips and warnings for the log."""

import json
import logging

from gpt_oss_server.content.logprobs import LEAST
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.harmony.events import Slip
from gpt_oss_server.turns.repetition import TurnWarning
from gpt_oss_server.turns.transcript import Transcript

_log = logging.getLogger(__name__)
_MOST_SLIPS = 100


def debug_metadata(
    encoding: Encoding, transcript: Transcript, compaction: Transcript | None = None
) -> dict[str, str]:
    """Texts, as all metadata; lists are JSON. A token that was not sampled here has no log-probability.

    `compaction`: the prompt that requested a summary, and the summary as the model wrote it.
    """
    # Bounded: a broken model can slip at every token.
    departures: list[Slip | TurnWarning] = [*transcript.slips[:_MOST_SLIPS], *transcript.warnings]
    warnings = [{"kind": departure.kind, "detail": departure.detail} for departure in departures]
    texts = _texts(encoding, transcript, "__debug")
    summarised = {} if compaction is None else _texts(encoding, compaction, "__debug_compaction")
    return {
        "__debug": "".join(texts.values()),
        **texts,
        "__debug_input_ids": json.dumps(list(transcript.prompt)),
        "__debug_output_ids": json.dumps(transcript.tokens),
        "__debug_output_logprobs": json.dumps(_scores(transcript)),
        "__debug_warnings": json.dumps(warnings, ensure_ascii=False),
        **summarised,
    }


def _texts(encoding: Encoding, transcript: Transcript, key: str) -> dict[str, str]:
    return {
        f"{key}_input": encoding.decode(transcript.prompt),
        f"{key}_output": encoding.decode(transcript.tokens),
    }


def _scores(transcript: Transcript) -> list[float | None]:
    scores = (transcript.scores.get(place) for place in range(len(transcript.tokens)))
    return [None if score is None else max(score, LEAST) for score in scores]


def log_turn(name: str, transcript: Transcript) -> None:
    if transcript.slips:
        kinds = ", ".join(sorted({slip.kind for slip in transcript.slips}))
        _log.info("%s: the model departed from Harmony (%s); nothing was lost.", name, kinds)
    for warning in transcript.warnings:
        _log.info("%s: %s", name, warning.detail)
