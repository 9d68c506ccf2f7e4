"""The code of the clients' pages, with the real clients: as it stands, except for the address."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.clients.recording import recorded
from tests.doubles.clients.running import HELLO, run_code
from tests.doubles.pages.blocks import ADDRESS, Block, blocks
from tests.doubles.serving import scripted

pytestmark = pytest.mark.clients

CODE = [
    block
    for block in blocks()
    if block.page.startswith("docs/clients/") and block.language in ("python", "js") and block.reason is None
]


@pytest.mark.parametrize("block", CODE, ids=str)
def test_the_code_prints_the_answer(block: Block, tmp_path: Path) -> None:
    with recorded(scripted(HELLO), Settings(served_model_name=("tiny",))) as (url, recorder):
        code = block.code.replace(f"{ADDRESS}/v1", url)
        name = "page.py" if block.language == "python" else "page.mjs"
        assert run_code(name, code, tmp_path).strip() == "Hello!"
    recorder.check()
