"""Any JSON that the model may write into a call: the response ends, is stored, and can be streamed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_core import to_json

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.apis.services import browsing_service
from tests.doubles.lints import check_stream
from tests.doubles.serving import scripted

LONE = r"\ud83d"
DEEP = "[" * 3000 + "]" * 3000
FUNCTION = "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>{}<|call|>"
BROWSER = "<|channel|>analysis to=browser.{} code<|message|>{}<|call|>"
FINAL = "<|channel|>final<|message|>Done.<|return|>"
SEARCH = {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}}
PATCH = f'{{"type":"create_file","path":"{LONE}","diff":"+{LONE}"}}'
SEARCHES = (f'{{"{LONE}":"{LONE}"}}', '{"q":NaN}', '{"q":1e999}', f'{{"q":{DEEP}}}')
WRITTEN: list[tuple[dict[str, Any], str]] = [
    *(
        (tool, FUNCTION.format(tool["type"], body))
        for tool, bodies in (
            ({"type": "local_shell"}, (f'{{"command":["{LONE}"]}}', f'{{"command":{DEEP}}}')),
            ({"type": "shell"}, (f'{{"commands":["{LONE}"]}}',)),
            ({"type": "apply_patch"}, (PATCH, DEEP)),
            (SEARCH, SEARCHES),
        )
        for body in bodies
    ),
    *(
        ({"type": "web_search"}, BROWSER.format(function, body))
        for function in ("search", "open", "find", "nobody")
        for body in (f'{{"query":"{LONE}","id":"http://{LONE}","pattern":"{LONE}"}}', DEEP, "[" * 3000, "NaN")
    ),
]


@pytest.mark.parametrize(("tool", "turn"), WRITTEN)
async def test_it_ends_and_can_be_streamed(encoding: Encoding, tmp_path: Path, tool: Any, turn: str) -> None:
    service = browsing_service(tmp_path, scripted(turn, FINAL), encoding=encoding)
    for limit in (None, 200):
        run = await service.start(LOCAL, {"input": "Hi", "tools": [tool], "max_output_tokens": limit})
        events = [event async for batch in run for event in batch]
        response = check_stream(events) if tool["type"] != "tool_search" else events[-1]["response"]
        # JSON that is too deep for a call's arguments is reported as invalid output.
        assert response["status"] != "failed" or "invalid_output" in response["error"]["message"]
        assert to_json(events)
        assert (await service.stored(LOCAL).retrieve(response["id"])).response == response
    await service.close()
