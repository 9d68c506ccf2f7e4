"""The contract of every store, as to what a trace costs and where its prompt comes from."""

import random
from dataclasses import replace
from typing import Any

import pytest

from gpt_oss_server.harmony.history import Segment, kept
from gpt_oss_server.harmony.recipients import Recipients
from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.chain import UnknownParent
from gpt_oss_server.stores.sql.responses import SqlTraces
from gpt_oss_server.stores.sql.store import SqlStore
from gpt_oss_server.traces.packed import packed, unpacked
from gpt_oss_server.traces.records import TraceRecord, Traces
from gpt_oss_server.turns.transcript import Transcript
from tests.doubles.stored import counted, known, turn

_HEAD, _CUE = tuple(range(50)), (200_006, 7)


class TracesContract:
    async def test_a_trace_costs_what_its_turn_added(self, store: Store) -> None:
        traces = Traces(enabled=True, most_bytes=2**30)
        writes = counted(store)
        costs: list[tuple[int, int, int]] = []
        for number in range(301):
            before = writes.rows, writes.written
            record = await self._put(store, traces, number, [])
            costs.append((writes.rows - before[0], writes.written - before[1], record.size))
        for early, late in zip(costs[10], costs[300], strict=True):
            assert late <= 1.03 * early

    async def test_a_trace_has_its_whole_prompt_also_after_its_parents_are_deleted(
        self, store: Store
    ) -> None:
        traces, prompts = Traces(enabled=True, most_bytes=2**30), list[list[int]]()
        for number in range(10):
            await self._put(store, traces, number, prompts)
        for number in range(9):
            await store.delete(f"resp_{number}")
        history = known(await store.history("resp_9"))
        records = [known(traces.get("resp_9"))]
        if isinstance(store, SqlStore):
            records.append(unpacked(known(await SqlTraces(store.database).get("resp_9")), {}))
        for record in records:
            assert record.tokens.prompt.tokens(history.segments) == prompts[9]

    async def test_a_turn_that_is_stored_with_its_whole_history_has_its_whole_prompt(
        self, store: Store
    ) -> None:
        """As one whose parent was deleted while it was generated."""
        traces, prompts = Traces(enabled=True, most_bytes=2**30), list[list[int]]()
        for number in range(3):
            await self._put(store, traces, number, prompts, gone=number == 2)
        history = known(await store.history("resp_2"))
        assert known(traces.get("resp_2")).tokens.prompt.tokens(history.segments) == prompts[2]

    async def _put(
        self, store: Store, traces: Traces, number: int, prompts: list[list[int]], *, gone: bool = False
    ) -> TraceRecord:
        """Stores a turn of a user's message, reasoning and an answer, with its trace."""
        past = await store.history(f"resp_{number - 1}") if number else None
        own, *generated = _segments(number)
        seen = (*(past.segments if past else ()), own)
        prompt = [*_HEAD, *(token for segment in kept(seen) for token in segment.tokens), *_CUE]
        prompts.append(prompt)
        transcript = Transcript(prompt, tokens=[token for segment in generated for token in segment.tokens])
        name = f"resp_{number}"
        traces.begin(name, TraceRecord({"input": "Hi"}, {"id": name}, Recipients(), transcript))
        record = known(traces.finish(name, seen, len(_CUE)))
        given = turn(name, past and past.position, segments=(own, *generated))
        if gone:
            await store.delete(f"resp_{number - 1}")
            with pytest.raises(UnknownParent):
                await store.put(given)
            given = turn(name, None, segments=(*seen, *generated))
        await store.put(replace(given, trace=packed(record, {"engine": {}})))
        traces.end(name)
        return record


def _segments(number: int) -> list[Segment]:
    draw = random.Random(number)
    kinds: Any = (("user", None), ("assistant", "analysis"), ("assistant", "final"))
    return [Segment(role, tuple(draw.choices(range(200_000), k=40)), channel) for role, channel in kinds]
