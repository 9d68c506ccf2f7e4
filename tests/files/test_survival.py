"""Files of vector stores outlive `kill -9` of the server that reads them; its memory stays within bounds."""

import asyncio
import signal
from pathlib import Path

import openai
import pytest

from tests.doubles.server_process import ServerProcess
from tests.doubles.waiting import until_found

FILES = 6
TEXT = "\n".join(f"Line {number} of the harbour's rules." for number in range(6_000))


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.faults)])
async def test_each_file_is_read_once_whenever_its_server_is_killed(tmp_path: Path, kills: int) -> None:
    flags = [
        "--model",
        "tiny",
        "--store",
        f"sqlite:{tmp_path}/store",
        "--background-lease",
        "4s",  # a busy machine may stop a server for a second
        "--python",
        "off",
    ]
    server = ServerProcess(flags, tmp_path / "log")
    server.start()
    try:
        await server.ready()
        async with openai.AsyncOpenAI(base_url=server.url, api_key="none") as client:
            count = max(FILES, 2 * kills)  # five deaths in the last files would fail those
            names = [f"{number}.txt" for number in range(count)]
            files = [
                await client.files.create(
                    file=(name, f"unique{name[:-4]} {TEXT}".encode()), purpose="assistants"
                )
                for name in names
            ]
            store = await client.vector_stores.create(file_ids=[file.id for file in files])
            counts: list[int] = []
            for number in range(kills):
                await asyncio.sleep(0.1 + 0.05 * (number % 5))
                server.send(signal.SIGKILL)
                server.kill()
                server.start()
                await server.ready()
                counts.append((await client.vector_stores.retrieve(store.id)).file_counts.completed)
            assert counts == sorted(counts)
            vectors = client.vector_stores
            ended = await until_found(
                lambda: vectors.retrieve(store.id), lambda store: store.status == "completed", seconds=300
            )
            assert (ended.file_counts.completed, ended.file_counts.failed) == (count, 0)
            for file in files:
                kept = await client.vector_stores.files.content(file.id, vector_store_id=store.id)
                name = file.filename.removesuffix(".txt")
                assert kept.data[0].text == f"unique{name} {TEXT}"
                hits = (await client.vector_stores.search(store.id, query=f"unique{name}")).data
                assert [hit.file_id for hit in hits] == [file.id], "a passage is stored once"
    finally:
        server.kill()


@pytest.mark.parametrize("count", [30, pytest.param(10_000, marks=pytest.mark.faults)])
async def test_the_memory_of_a_server_does_not_grow_with_what_it_reads(tmp_path: Path, count: int) -> None:
    flags = ["--model", "tiny", "--store", f"sqlite:{tmp_path}/store", "--python", "off"]
    server = ServerProcess(flags, tmp_path / "log")
    server.start()
    try:
        await server.ready()
        assert server.process is not None
        status = Path(f"/proc/{server.process.pid}/status")

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
    finally:
        server.kill()
