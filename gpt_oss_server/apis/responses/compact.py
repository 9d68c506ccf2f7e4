"""POST /v1/responses/compact: a conversation as the user's messages and a compaction of all else.

Takes a caller and a request body. Returns the API's object, or raises an `ApiError`.
"""

from __future__ import annotations

from typing import Any

from gpt_oss_server.apis.responses.past import is_user_message, past_user_messages
from gpt_oss_server.apis.responses.request import parse_compaction
from gpt_oss_server.apis.responses.resource import shown_usage
from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.errors import from_inference
from gpt_oss_server.items.compaction import compaction_item
from gpt_oss_server.runs.usage import usage_of_turns
from gpt_oss_server.turns.debug import log_turn
from gpt_oss_server.turns.transcript import Transcript
from inference.engine import InferenceError


async def compact(service: ResponsesService, caller: Caller, body: object) -> dict[str, Any]:
    """The user's messages and the compaction, to send in place of the conversation."""
    request, work = await service.parsed(caller, body, parse_compaction), service.served.work(caller)
    model = work.model
    model.check_room()
    messages = await past_user_messages(request, work.keep)
    prepared = await service.prepare(work, request, compacts=True)
    messages += [item for item in prepared.items if is_user_message(item)]
    compaction = prepared.compaction
    assert compaction is not None
    response_id, transcript = work.ids("resp"), Transcript(compaction.prompt)
    spending = await prepared.reserve(caller, request.max_output_tokens)
    try:
        compacted = await compaction.make(transcript, model.engine, model.encoding, model.renderer)
    except InferenceError as error:
        raise from_inference(error) from error
    finally:
        usage = usage_of_turns([transcript])
        spending.settle(usage.total)
        await prepared.close()
        name, with_text = f"{response_id} compaction", model.settings.log_prompts
        log_turn(name, model.encoding, transcript, with_text=with_text)
    return {
        "id": response_id,
        "object": "response.compaction",
        "created_at": int(work.clock()),
        "output": [*messages, compaction_item(work.ids, compacted, work.keep.sealer)],
        "usage": shown_usage(usage),
    }
