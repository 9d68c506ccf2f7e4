"""From a name such as `llama:http://127.0.0.1:8080` to its engine, after checks.

A server that has another vocabulary, tokenises otherwise or cannot return ids is refused at start, with a
sentence that states what to change there.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from inference.config import VOCABULARY
from inference.engine import CheckpointError, EngineInfo, InferenceError, ModelNotFound, Sampling
from inference.remote import probe
from inference.remote.address import RemoteOptions, parse_address
from inference.remote.connection import Caller
from inference.remote.engine import RemoteEngine
from inference.remote.llama import LlamaWire
from inference.remote.vllm import VllmWire
from inference.remote.wire import Ask, Facts, Wire

WIRES: tuple[type[Wire], ...] = (LlamaWire, VllmWire)
ANY = "http"  # an address without a kind
_KINDS = {wire.kind: wire for wire in WIRES}


def load_remote(
    kind: str, url: str, *, context: int | None = None, options: RemoteOptions | None = None
) -> RemoteEngine:
    """Raises `InferenceError`. `kind` is a wire's, or `ANY`, which finds it out."""
    address = parse_address(url, WIRES[0].kind if kind == ANY else kind)
    caller = Caller(address, options or RemoteOptions())
    with ThreadPoolExecutor(1) as thread:  # the caller may run an event loop
        return thread.submit(asyncio.run, _checked(caller, kind, context)).result()


async def _checked(caller: Caller, kind: str, context: int | None) -> RemoteEngine:
    wire = (await _found(caller) if kind == ANY else _KINDS[kind])(caller)
    facts = await wire.facts()
    _check_vocabulary(caller, facts)
    await _check_tokens(caller, wire)
    await _check_ids(caller, wire)
    if context is not None and context > facts.context_length:
        raise CheckpointError(
            f"--context is {context}, but the server at {caller.url} holds {facts.context_length} tokens."
        )
    info = EngineInfo(
        name=facts.name,
        context_length=facts.context_length if context is None else context,
        description=f"{wire.title} at {caller.url}",
        honours=wire.honours,
        ignores=wire.ignores,
        notation=wire.notation,
        plan=facts.about,
    )
    return RemoteEngine(caller, wire, info)


async def _found(caller: Caller) -> type[Wire]:
    for wire in WIRES:
        if await wire.recognises(caller):
            return wire
    known = ", ".join(wire.title for wire in WIRES)
    raise ModelNotFound(f"{caller.url} answers, but is none of the known engines: {known}.")


def _check_vocabulary(caller: Caller, facts: Facts) -> None:
    if facts.vocab_size not in (None, VOCABULARY):
        raise CheckpointError(
            f"The model {facts.name!r} at {caller.url} has {facts.vocab_size} token ids, but gpt-oss models "
            f"have {VOCABULARY}. Start that server with a gpt-oss model."
        )


async def _check_tokens(caller: Caller, wire: Wire) -> None:
    if await wire.tokenised(probe.TEXT) != list(probe.TOKENS):
        raise CheckpointError(
            f"The server at {caller.url} tokenises otherwise than gpt-oss models do. Start it with a gpt-oss "
            "model whose tokenizer has the Harmony format's special tokens."
        )


async def _check_ids(caller: Caller, wire: Wire) -> None:
    """Samples one token, which shows whether ids come back."""
    greedy = Sampling(temperature=0.0, max_tokens=1)
    try:
        pieces = [piece async for piece in wire.sample(list(probe.TOKENS[:4]), Ask(greedy, 0, 1))]
    except (KeyError, TypeError) as error:
        raise _no_ids(caller, wire) from error
    if not any(piece.tokens for piece in pieces):
        raise _no_ids(caller, wire)


def _no_ids(caller: Caller, wire: Wire) -> InferenceError:
    return CheckpointError(
        f"{wire.title} at {caller.url} returned no token ids. Update it: this needs a version that does."
    )
