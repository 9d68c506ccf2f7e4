"""The browser's pages of earlier turns, on a server that did not run those turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.serving import scripted, serving

NEXT = "<|end|><|start|>assistant"
SEARCH = '<|channel|>analysis to=browser.search code<|message|>{"query":"fjord"}<|call|>'
OPEN = '<|channel|>analysis to=browser.open code<|message|>{"cursor":0,"id":0}<|call|>'
FIND = '<|channel|>analysis to=browser.find code<|message|>{"cursor":1,"pattern":"cold"}<|call|>'
DEEP = "<|channel|>final<|message|>It is deep【1†L0-L2】.<|return|>"
COLD = "<|channel|>final<|message|>It is cold【1†L4-L5】, as found【2†L0】 by search【0†L4】.<|return|>"
TOOLS = [{"type": "web_search"}]


def ask(url: str, **body: Any) -> dict[str, Any]:
    answer = httpx.post(f"{url}/responses", json={"input": "fjord", "tools": TOOLS, **body}, timeout=60)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def citations(response: dict[str, Any]) -> list[Any]:
    [message] = [item for item in response["output"] if item["type"] == "message"]
    return [(cited["url"], cited["title"]) for cited in message["content"][0]["annotations"]]


@pytest.mark.parametrize("by", ["response", "conversation"])
@pytest.mark.parametrize("second", [[COLD], [FIND, COLD]], ids=["cites", "finds"])
def test_a_turn_elsewhere_sees_the_pages_of_the_first(tmp_path: Path, by: str, second: list[str]) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "fjord.md").write_text("# The fjord\n\nThe fjord is very deep.\n\nIt is cold.\n")
    settings = Settings(store=f"sqlite:{tmp_path / 'store.sqlite'}", browser=f"local:{pages}")

    def turns(first: str, then: str) -> list[Any]:
        body = {}
        if by == "conversation":
            body = {"conversation": httpx.post(f"{first}/conversations", json={}).json()["id"]}
        begun = ask(first, **body)
        ended = ask(then, **(body or {"previous_response_id": begun["id"]}))
        calls = [item["action"] for item in ended["output"] if item["type"] == "web_search_call"]
        return [citations(begun), citations(ended), calls]

    with serving(scripted(SEARCH, OPEN, DEEP, *second), settings) as alone:
        expected = turns(alone, alone)
    with (
        serving(scripted(SEARCH, OPEN, DEEP), settings) as here,
        serving(scripted(*second), settings) as there,
    ):
        assert turns(here, there) == expected
    assert len(expected[1]) >= 2, "the pages of the first turn are cited"
