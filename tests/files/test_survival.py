"""Files of vector stores outlive `kill -9` of the server that reads them; its memory stays within bounds."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest

from tests.doubles.server_process import ServerProcess
from tests.doubles.stored import known
from tests.doubles.waiting import until_found

FILES = 6
TEXT = "\n".join(f"Line {number} of the harbour's rules." for number in range(6_000))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    lease = ("--background-lease", "4s")  # a busy machine may stop a server for a second
    flags = ("--model", "tiny", "--store", f"sqlite:{tmp_path}/store", *lease, "--python", "off")
    server = ServerProcess(flags, tmp_path / "log")
    server.start()
    try:
        await server.ready()
        yield server
    finally:
        server.kill()


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.faults)])
async def test_each_file_is_read_once_whenever_its_server_is_killed(
    server: ServerProcess, kills: int
) -> None:
    async with openai.AsyncOpenAI(base_url=server.url, api_key="none") as client:
        vectors = client.vector_stores
        words = [f"unique{number}" for number in range(max(FILES, 2 * kills))]
        files = {  # five deaths in the last files would fail those
            word: await client.files.create(
                file=(f"{word}.txt", f"{word} {TEXT}".encode()), purpose="assistants"
            )
            for word in words
        }
        store = await vectors.create(file_ids=[file.id for file in files.values()])
        counts: list[int] = []
        for number in range(kills):
            await asyncio.sleep(0.1 + 0.05 * (number % 5))
            server.send(signal.SIGKILL)
            server.kill()
            server.start()
            await server.ready()
            counts.append((await vectors.retrieve(store.id)).file_counts.completed)
        assert counts == sorted(counts)
        ended = await until_found(
            lambda: vectors.retrieve(store.id), lambda store: store.status == "completed", seconds=300
        )
        assert (ended.file_counts.completed, ended.file_counts.failed) == (len(files), 0)
        for word, file in files.items():
            kept = await vectors.files.content(file.id, vector_store_id=store.id)
            assert kept.data[0].text == f"{word} {TEXT}"
            hits = (await vectors.search(store.id, query=word)).data
            assert [hit.file_id for hit in hits] == [file.id], "a passage is stored once"


@pytest.mark.parametrize("count", [30, pytest.param(10_000, marks=pytest.mark.faults)])
async def test_the_memory_of_a_server_does_not_grow_with_what_it_reads(
    server: ServerProcess, count: int
) -> None:
    status = Path(f"/proc/{known(server.process).pid}/status")

    def resident() -> int:
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if "VmRSS" in line)

    async with openai.AsyncOpenAI(base_url=server.url, api_key="none", timeout=600) as client:
        store = await client.vector_stores.create()
        peak = before = 0
        for number in range(count):
            file = (f"{number}.txt", f"File {number}.\n{TEXT[:105_000]}".encode())
            await client.vector_stores.files.upload(vector_store_id=store.id, file=file)
            peak = max(peak, resident())
            before = before or peak

        async def look() -> openai.types.VectorStore:
            nonlocal peak
            peak = max(peak, resident())
            await asyncio.sleep(0.1)
            return await client.vector_stores.retrieve(store.id)

        most = 60.0 + 0.3 * count
        ended = await until_found(look, lambda store: store.status == "completed", seconds=most)
        assert ended.file_counts.completed == count
        assert peak - before < 200 * 1024, f"{before} KiB after the first of {count} files, then {peak}"
