"""A trace as a JSON document: docs/traces.md describes each field.

It holds the texts of all its tokens, so that a reader needs no vocabulary.
"""

import math
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpt_oss_server import __version__
from gpt_oss_server.harmony.decoder import Decoder
from gpt_oss_server.harmony.encoding import STOP_IDS, Encoding
from gpt_oss_server.harmony.events import ClosedBy, HarmonyEvent, MessageFinished, Slip, SlipKind
from gpt_oss_server.harmony.history import Segment, are_kept
from gpt_oss_server.harmony.library import harmony_library
from gpt_oss_server.harmony.recipients import Recipients
from gpt_oss_server.harmony.strict import read_strictly
from gpt_oss_server.traces.records import TokenRecord, TraceRecord, tokens_of
from gpt_oss_server.turns.transcript import ToolRun, Transcript
from gpt_oss_server.turns.watch import GenerationSpan
from inference.backends.script_file import TRACE_FORMAT
from inference.engine import EngineInfo, InferenceError

VERSION = 1
_LEAST = -9999.0  # JSON has no infinity
_NAMED = 40  # of the tokens that a grammar allows


@dataclass(frozen=True, slots=True)
class Traced:
    """A record, and the stored history that ends with its response, if the record needs it."""

    record: TraceRecord
    history: Sequence[Segment] = ()
    transcript: Transcript | None = None  # of a run that was in progress; it may end meanwhile

    @property
    def tokens(self) -> TokenRecord:
        return self.record.tokens if self.transcript is None else tokens_of(self.transcript)


def trace_of(traced: Sequence[Traced], encoding: Encoding, info: EngineInfo) -> dict[str, Any]:
    responses = [_response(turn, encoding) for turn in traced]
    head = {"format": TRACE_FORMAT, "version": VERSION, **(traced[-1].record.origin or origin_of(info))}
    return {**head, "responses": responses, "vocabulary": _vocabulary(responses, encoding)}


def origin_of(info: EngineInfo) -> dict[str, Any]:
    """What generates responses in this process."""
    versions = {"gpt_oss_server": __version__, "harmony": harmony_library()}
    return {
        "server": {**versions, "python": platform.python_version()},
        "engine": {"name": info.name, "description": info.description, "context_length": info.context_length},
    }


def _response(turn: Traced, encoding: Encoding) -> dict[str, Any]:
    record, kept, known = turn.record, turn.tokens, turn.record.recipients
    generations = [_generation(record, kept, *each, encoding) for each in enumerate(kept.generations)]
    # Harmony leaves some messages out of the next turn's prompt.
    messages = [message for generation in generations for message in generation["messages"]]
    segments = [Segment("assistant", (), m["channel"], m["recipient"]) for m in messages]
    for message, is_kept in zip(messages, are_kept(segments), strict=True):
        message["dropped_next_turn"] = not is_kept
    return {
        "request": dict(record.request),
        "response": dict(record.response),
        "recipients": {"functions": sorted(known.functions), "builtin": sorted(known.builtin)},
        "prompt": kept.prompt.tokens(turn.history),
        "generations": generations,
        "tools": [_tool(record, run) for run in kept.tool_runs],
        "warnings": [{"kind": kind, "detail": detail} for kind, detail in kept.warnings],
    }


def _tool(record: TraceRecord, run: ToolRun) -> dict[str, Any]:
    return {**asdict(run), "began": _since(record, run.began), "ended": _since(record, run.ended)}


def _generation(
    record: TraceRecord, kept: TokenRecord, number: int, span: GenerationSpan, encoding: Encoding
) -> dict[str, Any]:
    before = kept.generations[number - 1].end if number else 0
    given = kept.tokens[before : span.start] if before is not None else []
    end = len(kept.tokens) if span.end is None else span.end
    tokens = list(kept.tokens[span.start : end])
    places = range(span.start, end)
    stopped = bool(tokens) and tokens[-1] in STOP_IDS
    return {
        # Tokens between the previous completion and this one: the tools' results, and the cue.
        "given": list(given),
        "cached": span.cached,
        "tokens": tokens,
        "logprobs": [_finite(kept.scores.get(place)) for place in places] if kept.scores else None,
        "alternatives": {
            str(place - span.start): [[token, _finite(score)] for token, score in top]
            for place in places
            if (top := kept.alternatives.get(place))
        },
        "began": _since(record, span.began),
        "first_token": _since(record, span.first),
        "ended": _since(record, span.ended),
        "queued": span.queued,
        "stopped": stopped,
        **reading_of(tokens, encoding, record.recipients, stopped=stopped),
    }


def _since(record: TraceRecord, at: float | None) -> float | None:
    return None if at is None else round(at - record.began, 6)


def allowed_at(kept: TokenRecord, place: int, encoding: Encoding) -> dict[str, Any] | None:
    """What the grammar allowed at a place of the turn's tokens; None if there was none, or it is gone."""
    began = max((at for at in kept.grammars if at <= place), default=0)
    refers = kept.grammars.get(began)
    if refers is None or (grammar := refers()) is None:
        return None
    state = grammar.start()
    try:
        for token in kept.tokens[began:place]:
            state.accept(token)
        bits = enumerate(state.mask())
    except InferenceError:  # a tool's result, which no grammar binds
        return None
    ids = [8 * at + bit for at, byte in bits if byte for bit in range(8) if byte >> bit & 1]
    forbidden = {token for token, _ in kept.alternatives.get(place, ())} - set(ids)
    named = [[token, encoding.spelt(token)] for token in ids[:_NAMED]]
    return {"count": len(ids), "tokens": named, "forbidden": sorted(forbidden)}


def _finite(score: float | None) -> float | None:
    return None if score is None else max(score, _LEAST) if not math.isnan(score) else None


def _vocabulary(responses: Iterable[dict[str, Any]], encoding: Encoding) -> dict[str, str | list[int]]:
    """The text of each token that occurs; the bytes of those that are parts of characters."""
    ids: set[int] = set()
    for response in responses:
        ids.update(response["prompt"])
        for part in response["generations"]:
            ids.update(part["given"], part["tokens"])
            ids.update(token for top in part["alternatives"].values() for token, _ in top)
    return {str(token): encoding.spelt(token) for token in sorted(ids)}


def reading_of(
    tokens: Sequence[int], encoding: Encoding, recipients: Recipients, *, stopped: bool
) -> dict[str, Any]:
    """`stopped`: the model ended the completion itself; only then a header that is cut is a slip."""
    decoder = Decoder(encoding, recipients)
    messages: list[MessageFinished] = []
    slips: list[dict[str, Any]] = []

    def take(event: HarmonyEvent, at: int) -> None:
        if isinstance(event, MessageFinished):
            messages.append(event)
        elif isinstance(event, Slip):
            slips.append({"at": at, "kind": str(event.kind), "detail": event.detail})

    for at, token in enumerate(tokens):
        for event in decoder.feed(token):
            take(event, at)
    for event in decoder.close():
        if stopped or not (isinstance(event, Slip) and event.kind is SlipKind.CUT_HEADER):
            take(event, max(len(tokens) - 1, 0))
    strict = read_strictly(tokens, encoding)
    return {"messages": list(map(_message, messages)), "slips": slips, "library": _library(strict, messages)}


def _message(message: MessageFinished) -> dict[str, Any]:
    span, end = {"start": message.start, "end": message.end}, str(message.closed_by)
    return {**span, **asdict(message.header), "closed_by": end, "text": message.text}


def _library(strict: dict[str, Any], messages: Sequence[MessageFinished]) -> dict[str, Any]:
    """The library's reading, and whether it agrees with the decoder's in all that a client could notice."""
    own = [(m.header.channel, m.header.recipient, m.text) for m in messages]
    theirs = [(m["channel"], m["recipient"], m["text"]) for m in strict["messages"]]
    if messages and messages[-1].closed_by is ClosedBy.TRUNCATED and len(own) > len(theirs):
        own.pop()  # the library shows no message before its end
    return {**strict, "agrees": strict["stopped_at"] is None and own == theirs}
