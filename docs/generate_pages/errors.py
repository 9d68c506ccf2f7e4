"""The page of errors: each code with its status, its type, and when a client receives it."""

from __future__ import annotations

from generate_pages.markdown import NOTE, code, json_block, table
from gpt_oss_server.errors import ModelNotServed, every_error

_HEAD = """
# Errors

Every error has OpenAI's body, with all four keys:

{example}
The header `x-should-retry: false` tells the official SDK not to repeat a request that would fail again, or
whose repetition costs another whole generation (`invalid_output`). Each answer carries `x-request-id`, the
request's own or a new one. Once a stream has begun, the status cannot change: a failure closes the open
items and ends the stream with one `response.failed`, whose `response.error` has `code` and `message`. The
code is one that the official SDK lists, with this server's own code in the message;
`context_length_exceeded` and `server_is_overloaded` stay as they are, because agents read them.

Every item of a stream is done once. A call that a failure or the output limit cuts off is done with the
status `incomplete`. Some clients run each call that is done, whatever its status (Codex 0.171 does):
`--no-end-cut-calls` leaves out the `done` events of such a call.

A streamed request of the Responses API whose prompt is too long also fails this way, unless it runs in the
background: agents read that code and shorten their conversation.

"""


def errors_page() -> str:
    example = ModelNotServed("There is no model 'gpt-5' here. This server serves: tiny.", param="model")
    rows = [(code(each.code), str(each.status), code(each.type), each.when) for each in every_error()]
    head = _HEAD.format(example=json_block(example.body()))
    return NOTE + head + table(("code", "status", "type", "when"), dict.fromkeys(rows))
