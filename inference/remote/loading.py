"""From a name such as `llama:http://127.0.0.1:8080` to its engine, after checks.

A server that has another vocabulary, tokenises otherwise or cannot return ids is refused at start, with a
sentence that states what to change there. Of several servers, one has to be there, of whatever rank.
"""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby

from inference.config import VOCABULARY
from inference.engine import CheckpointError, EngineBusy, EngineInfo, InferenceError, ModelNotFound, Sampling
from inference.options import EngineOptions
from inference.remote.connection import Caller, Unreachable, parse_address, parse_addresses
from inference.remote.engine import RemoteEngine
from inference.remote.replicas import Keeper, Replica, Replicas
from inference.remote.wire import Ask, Facts, Wire

_log = logging.getLogger(__name__)

Wires = Sequence[type[Wire]]
Rank = tuple[Wires, str]
"""The addresses of servers of one model, with commas between several, and which wires they may speak: the one
that recognises a server is taken. Those of a later rank serve while none of an earlier one can."""
# Another vocabulary, another way of splitting text, or special tokens that are spelt instead of recognised
# all give other ids.
PROBE = (
    "<|start|>system<|message|>Grüße, 世界! 12345 🧿\n\n  x = don't  \r\n\tcamelCase HTTPServer<|end|>"
    "<|start|>assistant<|channel|>commentary to=a.b <|constrain|>json<|message|>{}<|call|><|return|>"
)
_PROBE_TOKENS = (
    "200006 17360 200008 3193 572 13153 11 185558 0 220 7633 2548 9552 100 123 279 220 1215 314 4128 18668 "
    "2736 23870 6187 21929 6444 200007 200006 173781 200005 12606 815 316 53088 1292 220 200003 4108 "
    "200008 12083 200012 200002"
)
_PROBE_IDS = [int(token) for token in _PROBE_TOKENS.split()]


def load_remote(ranks: Sequence[Rank], options: EngineOptions, keeper: Keeper | None = None) -> RemoteEngine:
    """The engine of all ranks' servers. Raises `InferenceError`. A `keeper` keeps the one server running."""
    callers = [
        (wires, [Caller(address, options) for address in parse_addresses(urls, wires[0].kind)])
        for wires, urls in ranks
    ]
    with ThreadPoolExecutor(1) as thread:  # the caller may run an event loop
        return thread.submit(asyncio.run, _loaded(callers, options.context, keeper)).result()


async def _loaded(
    ranks: Sequence[tuple[Wires, Sequence[Caller]]], context: int | None, keeper: Keeper | None
) -> RemoteEngine:
    replicas: list[Replica] = []
    for rank, (wires, callers) in enumerate(ranks):
        wire_type = wires[0] if len(wires) == 1 else await _recognised(wires, callers)
        replicas += [Replica(wire_type(caller), caller.url, keeper, rank) for caller in callers]
    if keeper is not None:
        keeper.moved = partial(_move, replicas[0])
    names: dict[int, str] = {}  # of each rank's model
    stated = [await _facts_unless_down(one, names, alone=len(replicas) == 1) for one in replicas]
    facts = [fact for fact in stated if fact is not None]
    if not facts:
        raise Unreachable(f"None of the servers answers: {', '.join(replica.url for replica in replicas)}.")
    shortest = min(facts, key=lambda fact: fact.context_length)
    if context is not None and context > shortest.context_length:
        raise CheckpointError(
            f"--context is {context}, but the server holds {shortest.context_length} tokens."
        )
    each = [replica.wire for replica in replicas]
    info = EngineInfo(
        name=facts[0].name,
        context_length=shortest.context_length if context is None else context,
        description=_description(replicas),
        honours=frozenset.intersection(*(wire.honours for wire in each)),
        ignores=frozenset().union(*(wire.ignores for wire in each), *(fact.ignores for fact in facts)),
        notation=each[0].notation,
        plan=shortest.about,
    )
    return RemoteEngine(Replicas(replicas), info, partial(_check_again, info, names))


def _description(replicas: Sequence[Replica]) -> str:
    first = replicas[0]
    if first.keeper is not None:
        return f"{first.wire.title}, which this server has started"
    ranks = [list(ones) for _, ones in groupby(replicas, key=lambda replica: replica.rank)]
    return "; else ".join(f"{ones[0].wire.title} at {', '.join(one.url for one in ones)}" for ones in ranks)


def _move(replica: Replica, url: str) -> None:
    replica.url = url
    replica.wire.caller.move(parse_address(url, replica.wire.kind))


async def _facts_unless_down(replica: Replica, names: dict[int, str], *, alone: bool) -> Facts | None:
    """None for one of several servers that cannot be asked yet."""
    try:
        facts = await _checked(replica)
    except (Unreachable, EngineBusy) as error:
        if alone:
            raise
        replica.checked = False
        _log.warning("%s is used when it answers. %s", replica.url, error)
        return None
    if (name := names.setdefault(replica.rank, facts.name)) != facts.name:
        raise CheckpointError(
            f"The servers run different models: {name!r} and {facts.name!r}. "
            "Replicas must be of one model, under one name."
        )
    return facts


async def _checked(replica: Replica) -> Facts:
    wire, url = replica.wire, replica.url
    facts = await wire.facts()
    if facts.vocab_size not in (None, VOCABULARY):
        raise CheckpointError(
            f"The model {facts.name!r} at {url} has {facts.vocab_size} token ids, but gpt-oss models "
            f"have {VOCABULARY}. Start that server with a gpt-oss model."
        )
    if await wire.tokenised(PROBE) != _PROBE_IDS:
        raise CheckpointError(
            f"The server at {url} tokenises otherwise than gpt-oss models do. Start it with a gpt-oss "
            "model whose tokenizer has the Harmony format's special tokens."
        )
    if not await _has_ids(wire):
        raise CheckpointError(
            f"{wire.title} at {url} returned no token ids. Update it: this needs a version that does."
        )
    return facts


async def _has_ids(wire: Wire) -> bool:
    """Samples one token, which shows whether ids come back."""
    greedy = Sampling(temperature=0.0, max_tokens=1)
    try:
        return any([piece.tokens async for piece in wire.sample(_PROBE_IDS[:4], Ask(greedy, 0, 1))])
    except (KeyError, TypeError):
        return False


async def _check_again(info: EngineInfo, names: dict[int, str], replica: Replica) -> None:
    facts = await _checked(replica)
    name = names.setdefault(replica.rank, facts.name)
    if facts.name != name or facts.context_length < info.context_length:
        raise CheckpointError(
            f"It has {facts.name!r} with a context of {facts.context_length} tokens now, not {name!r} "
            f"with {info.context_length}."
        )


async def _recognised(wires: Wires, callers: Sequence[Caller]) -> type[Wire]:
    """The wire of the first server that answers."""
    failure: InferenceError | None = None
    for caller in callers:
        try:
            for wire in wires:
                if await wire.recognises(caller):
                    return wire
        except Unreachable as error:
            failure = failure or error
        else:
            known = ", ".join(wire.title for wire in wires)
            raise ModelNotFound(f"{caller.url} answers, but is none of the known engines: {known}.")
    assert failure is not None
    raise failure
