"""From a name such as `llama:http://127.0.0.1:8080` to its engine, after checks.

A server that has another vocabulary, tokenises otherwise or cannot return ids is refused at start, with a
sentence that states what to change there. Of several servers, one has to be there; the others are checked
when they answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from inference.config import VOCABULARY
from inference.engine import CheckpointError, EngineBusy, EngineInfo, InferenceError, ModelNotFound, Sampling
from inference.remote import probe
from inference.remote.address import RemoteOptions, parse_addresses
from inference.remote.connection import Caller
from inference.remote.engine import RemoteEngine
from inference.remote.failures import Unreachable
from inference.remote.llama import LlamaWire
from inference.remote.replicas import Replica, Replicas
from inference.remote.sglang import SglangWire
from inference.remote.vllm import VllmWire
from inference.remote.wire import Ask, Facts, Wire

_log = logging.getLogger(__name__)

WIRES: tuple[type[Wire], ...] = (LlamaWire, VllmWire, SglangWire)
ANY = "http"  # an address without a kind
_KINDS = {wire.kind: wire for wire in WIRES}


def load_remote(
    kind: str, urls: str, *, context: int | None = None, options: RemoteOptions | None = None
) -> RemoteEngine:
    """Raises `InferenceError`. `kind` is a wire's, or `ANY`, which finds it out. `urls` may have commas."""
    options = options or RemoteOptions()
    addresses = parse_addresses(urls, WIRES[0].kind if kind == ANY else kind)
    callers = [Caller(address, options) for address in addresses]
    with ThreadPoolExecutor(1) as thread:  # the caller may run an event loop
        return thread.submit(asyncio.run, _loaded(callers, kind, context, options)).result()


async def _loaded(
    callers: Sequence[Caller], kind: str, context: int | None, options: RemoteOptions
) -> RemoteEngine:
    wire_type = await _found(callers) if kind == ANY else _KINDS[kind]
    replicas = [Replica(wire_type(caller), caller.url) for caller in callers]
    facts = [found for each in replicas if (found := await _facts_of(each, alone=len(replicas) == 1))]
    if not facts:
        raise Unreachable(f"None of the servers answers: {', '.join(each.url for each in replicas)}.")
    shortest = min(facts, key=lambda each: each.context_length)
    if others := {each.name for each in facts} - {shortest.name}:
        names = ", ".join(map(repr, sorted(others)))
        raise CheckpointError(
            f"The servers run different models: {shortest.name!r} and {names}. "
            "Replicas must be of one model, under one name."
        )
    if context is not None and context > shortest.context_length:
        raise CheckpointError(
            f"--context is {context}, but the server holds {shortest.context_length} tokens."
        )
    info = EngineInfo(
        name=shortest.name,
        context_length=shortest.context_length if context is None else context,
        description=f"{wire_type.title} at {', '.join(each.url for each in replicas)}",
        honours=wire_type.honours,
        ignores=wire_type.ignores.union(*(each.ignores for each in facts)),
        notation=wire_type.notation,
        plan=shortest.about,
    )
    return RemoteEngine(Replicas(replicas), info, partial(_check_again, info), pause=options.pause)


async def _facts_of(replica: Replica, *, alone: bool) -> Facts | None:
    """None for one of several servers that cannot be asked yet."""
    try:
        return await _checked(replica)
    except (Unreachable, EngineBusy) as error:
        if alone:
            raise
        replica.checked = False
        _log.warning("%s is used when it answers. %s", replica.url, error)
        return None


async def _checked(replica: Replica) -> Facts:
    wire, url = replica.wire, replica.url
    facts = await wire.facts()
    _check_vocabulary(url, facts)
    await _check_tokens(url, wire)
    await _check_ids(url, wire)
    return facts


async def _check_again(info: EngineInfo, replica: Replica) -> None:
    facts = await _checked(replica)
    if facts.name != info.name or facts.context_length < info.context_length:
        raise CheckpointError(
            f"It has {facts.name!r} with a context of {facts.context_length} tokens now, not {info.name!r} "
            f"with {info.context_length}."
        )


async def _found(callers: Sequence[Caller]) -> type[Wire]:
    """The wire of the first server that answers."""
    failure: InferenceError | None = None
    for caller in callers:
        try:
            return await _recognised(caller)
        except Unreachable as error:
            failure = failure or error
    assert failure is not None
    raise failure


async def _recognised(caller: Caller) -> type[Wire]:
    for wire in WIRES:
        if await wire.recognises(caller):
            return wire
    known = ", ".join(wire.title for wire in WIRES)
    raise ModelNotFound(f"{caller.url} answers, but is none of the known engines: {known}.")


def _check_vocabulary(url: str, facts: Facts) -> None:
    if facts.vocab_size not in (None, VOCABULARY):
        raise CheckpointError(
            f"The model {facts.name!r} at {url} has {facts.vocab_size} token ids, but gpt-oss models "
            f"have {VOCABULARY}. Start that server with a gpt-oss model."
        )


async def _check_tokens(url: str, wire: Wire) -> None:
    if await wire.tokenised(probe.TEXT) != list(probe.TOKENS):
        raise CheckpointError(
            f"The server at {url} tokenises otherwise than gpt-oss models do. Start it with a gpt-oss "
            "model whose tokenizer has the Harmony format's special tokens."
        )


async def _check_ids(url: str, wire: Wire) -> None:
    """Samples one token, which shows whether ids come back."""
    greedy = Sampling(temperature=0.0, max_tokens=1)
    try:
        pieces = [piece async for piece in wire.sample(list(probe.TOKENS[:4]), Ask(greedy, 0, 1))]
    except (KeyError, TypeError) as error:
        raise _no_ids(url, wire) from error
    if not any(piece.tokens for piece in pieces):
        raise _no_ids(url, wire)


def _no_ids(url: str, wire: Wire) -> InferenceError:
    return CheckpointError(
        f"{wire.title} at {url} returned no token ids. Update it: this needs a version that does."
    )
