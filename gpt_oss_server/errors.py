"""All errors that a client can receive.

Takes a helpful sentence and, if one is at fault, the request's parameter. Returns an HTTP status and OpenAI's
error body, which always has its four keys. `from_inference` and `from_exception` translate errors of other
packages.

The classes form a tree whose branches share a status or a type. docs/errors.md lists the codes, each with the
`when` of its class.
"""

import logging
from collections.abc import Sequence
from typing import ClassVar, Self

from inference.engine import (
    ContextOverflow,
    EngineBusy,
    EngineClosed,
    EngineFailed,
    GrammarFailed,
    InferenceError,
)

ErrorBody = dict[str, dict[str, str | None]]
_MESSAGE, _PARAM, _TAIL = 1_500, 200, 400  # characters: messages quote what a client or the model wrote
_RESPONSE_CODES = frozenset(
    {
        "server_error",
        "rate_limit_exceeded",
        "invalid_prompt",
        # OpenAI's document and SDKs do not list these two, but its service sends them and agents read them:
        # Codex shortens the conversation at the first and waits at the second.
        "context_length_exceeded",
        "server_is_overloaded",
    }
)
"""The codes that the error of a response may have."""
_log = logging.getLogger(__name__)


class ApiError(Exception):
    """The root of all errors that a client receives."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str | None] = "server_error"
    when: ClassVar[str] = "The engine or the server broke; the server's log states why."
    may_pass: bool = True  # the same request may succeed when it is sent again
    retry_after: float | None = None  # seconds

    def __init__(self, message: str, *, param: str | None = None, retry_after: float | None = None) -> None:
        self.retry_after = self.retry_after if retry_after is None else retry_after
        self.message = _shortened(message, _MESSAGE)
        self.param = None if param is None else param[:_PARAM]
        super().__init__(self.message)

    @classmethod
    def at(cls, place: str, problem: str) -> Self:
        """The error of a field: its sentence begins with the field's place in the request."""
        return cls(f"`{place}`{problem if problem.startswith(':') else f' {problem}'}", param=place)

    def body(self) -> ErrorBody:
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def of_response(self) -> dict[str, str]:
        """The `error` of a failed response, whose codes the API limits; another code is in the message."""
        if self.code in _RESPONSE_CODES:
            return {"code": self.code, "message": self.message}
        known = "invalid_prompt" if self.status < 500 else "server_error"
        return {"code": known, "message": f"{self.message} (Code: {self.code}.)"}


def _shortened(text: str, most: int) -> str:
    """The beginning and the end of a long text; the advice is at the end."""
    return text if len(text) <= most else f"{text[: most - _TAIL]} … {text[-_TAIL:]}"


class InvalidRequest(ApiError):
    status = 400
    type = "invalid_request_error"
    code = "invalid_value"
    when = "A field has the wrong type or a value that is not allowed; `param` names it."
    may_pass = False


class UnknownField(InvalidRequest):
    code = "unknown_parameter"
    when = (
        "The server does not know a field, and runs with `--unknown-fields reject`; the message names "
        "the field that was probably meant."
    )


class UnsupportedField(InvalidRequest):
    code = "unsupported_parameter"
    when = "A field would change the answer and is not served; `param` names it."


class UnsupportedSchema(InvalidRequest):
    code = "invalid_json_schema"
    when = (
        "A schema cannot be enforced; the message names the keyword and its place, or states why the answer "
        "cannot be held to it any further."
    )


class UnsupportedGrammar(InvalidRequest):
    code = "invalid_grammar"
    when = "A custom tool's Lark grammar or regular expression cannot be enforced; the message states why."


class ToolNotAvailable(InvalidRequest):
    code = "tool_unavailable"
    when = "The request needs a tool that is switched off or not reached; the message states what to do."


class InvalidJson(InvalidRequest):
    code = "invalid_json"
    when = "The body is not JSON, or not an object."


class InvalidHttp(InvalidRequest):
    code = "invalid_http"
    when = "The bytes are no plain HTTP/1.1 request, for example https."


class EventsForgotten(InvalidRequest):
    code = "events_not_kept"
    when = "`stream` on retrieval of a response that is not a background one, or whose events are gone."


class PreviousResponseNotFound(InvalidRequest):
    code = "previous_response_not_found"
    when = "`previous_response_id` is not stored: send the whole conversation as input."


class ContextLengthExceeded(InvalidRequest):
    code = "context_length_exceeded"
    when = "The prompt leaves no room in the model's context."


class SocketLimitReached(InvalidRequest):
    code = "websocket_stream_limit_reached"
    when = "Too many lanes are active on one WebSocket, or too many requests wait in one lane."


class InvalidApiKey(InvalidRequest):
    status = 401
    code = "invalid_api_key"
    when = "The server needs a key ([Keys and limits](access.md)), and the request has none or a wrong one."


class ToolNotAllowed(InvalidRequest):
    status = 403
    code = "tool_not_allowed"
    when = "The request's key or model may not use a tool that the request names."


class OriginNotAllowed(InvalidRequest):
    status = 403
    code = "origin_not_allowed"
    when = "The request comes from a web page of another site, which `--allow-origin` does not name."


class HostNotAllowed(InvalidRequest):
    status = 403
    code = "host_not_allowed"
    when = (
        "The `Host` header names something else than this server, which `--allow-host` does not name either."
    )


class RequestTimeout(InvalidRequest):
    status = 408
    code = "request_timeout"
    when = (
        "The request did not arrive within `--request-timeout`, and a second more for each 10 KiB of "
        "its body."
    )


class BodyTooLarge(InvalidRequest):
    status = 413
    code = "request_too_large"
    when = "The body is larger than `--max-body-bytes`, or has more than 500,000 values."


class HeadTooLarge(InvalidRequest):
    status = 431
    code = "headers_too_large"
    when = "The first line, the headers or the trailers have more than 64 KiB."


class NotFound(ApiError):
    status = 404
    type = "invalid_request_error"
    code = "not_found"
    when = "There is no such path, or no object with this id; the message names it."
    may_pass = False


class ModelNotServed(NotFound):
    code = "model_not_found"
    when = "`model` is not served here; the message lists what is."


class ModelNotAllowed(InvalidRequest):
    status = 403
    code = "model_not_allowed"
    when = "The request's key may not use the model."


class ResponseNotFound(NotFound):
    code = "response_not_found"
    when = "No response with this id is stored."


class TraceNotFound(NotFound):
    code = "trace_not_found"
    when = "No trace of the response is kept: it was not stored, is too old, or is of another process."


class DebuggingOff(NotFound):
    code = "debugging_off"
    when = "Traces are not allowed here: see `--debug-api`."


class CompletionNotFound(NotFound):
    code = "completion_not_found"
    when = "No chat completion with this id is stored."


class ConversationNotFound(NotFound):
    code = "conversation_not_found"
    when = "No conversation with this id is stored."


class ItemNotFound(NotFound):
    code = "item_not_found"
    when = "An `item_reference`, or a path, names an item that is not stored."


class ContainerNotFound(NotFound):
    code = "container_not_found"
    when = (
        "No such container: it was never created, its conversation did not use python or ended, or it "
        "was idle too long."
    )


class NoSuchFile(NotFound):
    code = "file_not_found"
    when = "The server, or the container, has no file with this id."


class MethodNotAllowed(InvalidRequest):
    status = 405
    code = "method_not_allowed"
    when = "The path exists and does not take this method."

    def __init__(self, path: str, method: str, allowed: Sequence[str]) -> None:
        super().__init__(f"{path} does not support {method}; it supports {' and '.join(allowed)}.")
        self.allowed = allowed


class UpgradeRequired(InvalidRequest):
    status = 426
    code = "upgrade_required"
    when = "GET on a path that serves only WebSockets, or a WebSocket while they are switched off."


class TooManyContainers(ApiError):
    status = 429
    type = "rate_limit_error"
    code = "too_many_containers"
    when = (
        "This client, or all together, have as many containers as the server allows "
        "(`--python-max-sessions-per-client`, `--python-max-sessions`), or its files and kernels, or those "
        "of all, hold the memory that they may (`--key-python-memory`, `--python-memory`); delete one, or "
        "try again later."
    )
    may_pass = False  # until the client deletes one


class RateLimitExceeded(ApiError):
    """`retry_after`: seconds until the same request may succeed; None: not by waiting alone."""

    status = 429
    type = "requests"
    code = "rate_limit_exceeded"
    when = (
        "The key, or all clients, have used up their requests per minute, or the key has as many "
        "requests or background responses at work, or bytes in the store, as it may; try again after "
        "`retry-after` where there is one."
    )

    def __init__(self, message: str, *, param: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, param=param, retry_after=retry_after)
        self.may_pass = retry_after is not None


class TokenLimitExceeded(RateLimitExceeded):
    type = "tokens"
    when = "The same of tokens per minute, or a prompt that is longer than a minute's tokens."


class TooManyWrongKeys(RateLimitExceeded):
    code = "too_many_wrong_keys"
    when = "The client's address has sent more wrong keys than `--wrong-keys-per-minute`; see `retry-after`."


class EngineUnavailable(ApiError):
    status = 503
    code = "server_is_overloaded"
    when = (
        "The queue is full (`--max-waiting`), or the server is shutting down; try again after `retry-after`."
    )
    retry_after = 1.0


class EngineBroken(EngineUnavailable):
    code = "server_error"
    when = (
        "The engine cannot generate, or broke before anything was sent; `GET /health` states why; try again "
        "after `retry-after`."
    )


class StoreUnavailable(ApiError):
    status = 503
    code = "store_unavailable"
    when = (
        "The store does not answer, its disk is full, or its file cannot be written; the message states "
        "which; try again after `retry-after`."
    )
    retry_after = 1.0


class GenerationFailed(ApiError):
    pass


class RunInterrupted(ApiError):
    code = "response_interrupted"
    when = (
        "A background response's server stopped, and no other could continue it "
        "(`--background-max-attempts`); its output so far is kept."
    )


class InvalidOutput(ApiError):
    code = "invalid_output"
    when = (
        "The engine does not enforce the requested form, and the answer does not fit it; in the "
        "Responses API, stream or not, the response has failed (200) and keeps its text; a call that "
        "`tool_choice` forbids is never shown."
    )
    may_pass = False  # each repetition costs a whole generation, so the client decides


def from_inference(error: InferenceError) -> ApiError:
    """Translates an engine's errors into a client's; the only place that does."""
    match error:
        case ContextOverflow():
            return ContextLengthExceeded(str(error), param="input")
        case EngineBusy():
            waiting = "" if error.waiting is None else f", and {error.waiting} requests are already waiting"
            return EngineUnavailable(
                f"The server is busy{waiting}. "
                "Send the request again after the seconds given in `retry-after`.",
                retry_after=error.retry_after,
            )
        case EngineClosed():
            return EngineUnavailable("The server is shutting down. Send the request again in a moment.")
        case GrammarFailed():
            return UnsupportedSchema(str(error))
        case EngineFailed():
            return EngineBroken(f"The engine failed during generation: {error}")
        case _:
            return GenerationFailed(f"The engine failed during generation: {error}")


def from_exception(error: Exception, of: str) -> ApiError:
    """The error that ends a generation. `of` names the generated object for the log."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, InferenceError):
        return from_inference(error)
    _log.error("%s failed.", of, exc_info=error)
    return GenerationFailed("The server failed during generation. Its log contains the cause.")


def every_error() -> list[type[ApiError]]:
    """All classes of the tree, root first, for the tests of the documentation."""
    found: list[type[ApiError]] = [ApiError]
    for cls in found:
        found.extend(cls.__subclasses__())
    return found
