"""Containers where no code runs: bodies in an encoding that is not read are refused; uses count."""

import gzip
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest

from gpt_oss_server.apis.containers.sessions import Containers
from gpt_oss_server.caller.caller import LOCAL, Caller
from gpt_oss_server.errors import ContainerNotFound
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from gpt_oss_server.toolset.offered import Toolset
from tests.doubles.apis.api_client import Api
from tests.doubles.apis.asking import responses_service
from tests.doubles.serving import scripted
from tests.doubles.tools.scripted_tool import Clock, Ready
from tools.python import PythonTool
from tools.python.sandboxes.bounds.limits import SandboxLimits
from tools.python.sandboxes.unsafe_local import UnsafeLocal
from tools.toolbox import Offer, Toolbox


def client() -> httpx.AsyncClient:
    return Api(scripted("<|return|>"), Settings(python="off", browser="off")).client


async def test_a_compressed_body_is_refused() -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    answer = await client().post("/containers", content=gzip.compress(b'{"name": "a"}'), headers=headers)
    assert answer.status_code == 400
    assert "content-encoding 'gzip'" in answer.json()["error"]["message"]


async def test_a_file_that_no_container_takes_is_not_read() -> None:
    async def body() -> AsyncGenerator[bytes, None]:
        raise AssertionError("the body was asked for")
        yield b""

    kind = {"content-type": "multipart/form-data; boundary=b"}
    answer = await client().post("/containers/cntr_1/files", content=body(), headers=kind)
    assert answer.json()["error"]["code"] == "tool_unavailable"


MINUTE = 60.0
ME = Caller(client="me")


async def test_a_container_that_a_client_uses_is_not_idle(encoding: Encoding) -> None:
    """No code runs here: the client only finds the container, as it does for each upload."""
    clock = Clock()
    python = PythonTool(UnsafeLocal(SandboxLimits(), interpreter="python"))
    toolset = Toolset(Toolbox([Offer(python)], clock=lambda: clock.now), local={"python"})
    timed: dict[str, Any] = {"tools": Ready(toolset), "clock": lambda: clock.now}
    service = responses_service(scripted("<|return|>"), encoding=encoding, **timed)
    containers = Containers(service.served)
    kept = (await containers.create("a", "kept", ME)).id
    left = (await containers.create("b", "left", ME)).id
    await containers.create("c", "another's", Caller(client="you"))
    for _ in range(3):
        clock.now += 15 * MINUTE
        assert (await containers.find(kept, LOCAL)).as_json()["last_active_at"] == int(clock.now)
    assert [listed.metadata.name for listed in await containers.created_by("me")] == ["kept"]
    with pytest.raises(ContainerNotFound):
        await containers.find(left, LOCAL)
    clock.now += 15 * MINUTE
    [listed] = await containers.created_by("me")
    assert listed.as_json()["last_active_at"] == int(clock.now - 15 * MINUTE), "a list uses no container"
    clock.now += 6 * MINUTE
    assert await containers.created_by("me") == []
    await service.close()
    await toolset.close()
