"""Owners share threads, those that read pages too: none has all, and their turns alternate."""

import asyncio
import threading
from dataclasses import replace
from functools import partial

import pytest

from tests.doubles.waiting import until
from tools.browser.pages import processes
from tools.browser.pages.convert import convert
from tools.browser.pages.document import Document, Kind, PageBody
from tools.fair_threads import FairThreads


class Work:
    """Work that goes on until it is let go."""

    def __init__(self, threads: FairThreads, *owners: str) -> None:
        self.begun: list[str] = []
        self._go = {owner: threading.Event() for owner in owners}
        self.tasks = [asyncio.create_task(threads.run(owner, partial(self._work, owner))) for owner in owners]

    def _work(self, owner: str) -> str:
        self.begun.append(owner)
        assert self._go[owner].wait(240)
        return owner

    def end(self, owner: str) -> None:
        self._go[owner].set()


async def test_one_owner_leaves_a_thread_for_others() -> None:
    work = Work(FairThreads(2, "test"), *"aaa", "b")
    await until(lambda: sorted(work.begun) == ["a", "b"])
    work.end("a")
    assert await asyncio.gather(*work.tasks[:3]) == ["a"] * 3
    assert not work.tasks[3].done()
    work.end("b")
    assert await work.tasks[3] == "b"


async def test_owners_alternate_on_one_thread() -> None:
    work = Work(FairThreads(1, "test"), *"aaaa", *"bb", "c")
    await until(lambda: work.begun == ["a"])
    for owner in "abc":
        work.end(owner)
    await asyncio.gather(*work.tasks)
    assert "".join(work.begun) == "aabcaba"


async def test_work_that_was_given_up_keeps_its_thread_and_does_not_begin_later() -> None:
    threads = FairThreads(1, "test")
    work = Work(threads, "a", "b", "c")
    await until(lambda: work.begun == ["a"])
    for task in work.tasks[:2]:
        task.cancel()
    await asyncio.wait(work.tasks[:2])
    assert work.begun == ["a"], "its thread is still at work"
    work.end("a")
    work.end("c")
    assert await work.tasks[2] == "c"
    assert work.begun == ["a", "c"]


async def test_an_error_is_raised_and_frees_the_thread() -> None:
    threads = FairThreads(1, "test")
    with pytest.raises(ZeroDivisionError):
        await threads.run("a", lambda: 1 // 0)
    assert await threads.run("a", lambda: 2) == 2


async def test_slow_pages_of_one_owner_do_not_hold_up_the_pages_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(processes.SECONDS, "markup", 300.0)  # a busy machine may need many to begin a process
    pool, ends = processes.workers("markup"), threading.Event()
    read = pool.read

    def slow(body: PageBody, kind: Kind, unwanted: threading.Event) -> Document:
        assert body.url != "https://slow.example" or ends.wait(240)
        return read(body, kind, unwanted)

    monkeypatch.setattr(pool, "read", slow)
    page = PageBody("https://slow.example", "text/html", b"<title>A page</title><p>Text")
    hostile = [asyncio.create_task(convert(page, owner="a")) for _ in range(4)]
    await asyncio.sleep(0)
    assert (await convert(replace(page, url=""), owner="b")).title == "A page"
    assert not any(task.done() for task in hostile)
    ends.set()
    await asyncio.gather(*hostile)
