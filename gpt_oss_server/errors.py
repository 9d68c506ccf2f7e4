"""All errors that a client can receive.

Takes a helpful sentence and, if one is at fault, the request's parameter. Returns an HTTP status and OpenAI's
error body, which always has its four keys. `from_inference` and `from_exception` translate errors of other
packages.

ApiError                          500  server_error
├── InvalidRequest                400  invalid_request_error
│   ├── UnknownField              400  code unknown_parameter: with --unknown-fields reject
│   ├── UnsupportedField          400  code unsupported_parameter: not served, and would change the answer
│   ├── UnsupportedSchema         400  code invalid_json_schema: a JSON schema that cannot be enforced
│   ├── UnsupportedGrammar        400  code invalid_grammar: a custom tool's grammar that cannot be enforced
│   ├── ToolNotAvailable          400  code tool_unavailable: the operator has not enabled it
│   ├── InvalidJson               400  code invalid_json
│   ├── InvalidHttp               400  code invalid_http: the server cannot parse the request
│   ├── EventsForgotten           400  code events_not_kept: the log no longer has these events
│   ├── PreviousResponseNotFound  400  code previous_response_not_found, like OpenAI's service
│   ├── ContextLengthExceeded     400  code context_length_exceeded
│   ├── SocketLimitReached        400  code websocket_stream_limit_reached
│   ├── InvalidApiKey             401  code invalid_api_key: none, or not one of this server's
│   ├── ToolNotAllowed            403  code tool_not_allowed: the request's key may not use the tool
│   ├── OriginNotAllowed          403  code origin_not_allowed: a web page of another site
│   ├── HostNotAllowed            403  code host_not_allowed: a name that is not this server's
│   ├── RequestTimeout            408  code request_timeout: the request did not arrive in time
│   ├── BodyTooLarge              413  code request_too_large
│   └── HeadTooLarge              431  code headers_too_large
├── NotFound                      404  code not_found
│   ├── ModelNotServed            404  code model_not_found
│   ├── ResponseNotFound          404  code response_not_found
│   ├── CompletionNotFound        404  code completion_not_found
│   ├── ConversationNotFound      404  code conversation_not_found
│   ├── ItemNotFound              404  code item_not_found
│   ├── ContainerNotFound         404  code container_not_found
│   └── ContainerFileNotFound     404  code file_not_found
├── MethodNotAllowed              405  code method_not_allowed
├── UpgradeRequired               426  code upgrade_required
├── TooManyContainers             429  code too_many_containers: the client's own, or those of all
├── RateLimitExceeded             429  code rate_limit_exceeded: a limit of the key, or of all clients
│   ├── TokenLimitExceeded        429  the same, of tokens
│   └── TooManyWrongKeys          429  code too_many_wrong_keys: the client's address guesses keys
├── EngineUnavailable             503  code server_is_overloaded: try again later
├── StoreUnavailable              503  code store_unavailable: try again later
├── GenerationFailed              500  code server_error: the engine failed
├── RunInterrupted                500  code response_interrupted: no server could continue it
└── InvalidOutput                 500  code invalid_output: the model's answer lacks the requested form
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import ClassVar

from inference.engine import ContextOverflow, EngineBusy, EngineClosed, InferenceError

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
    may_pass: bool = True  # the same request may succeed when it is sent again

    def __init__(self, message: str, *, param: str | None = None) -> None:
        self.message = _shortened(message, _MESSAGE)
        self.param = None if param is None else param[:_PARAM]
        super().__init__(self.message)

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
    may_pass = False


class UnknownField(InvalidRequest):
    code = "unknown_parameter"


class UnsupportedField(InvalidRequest):
    code = "unsupported_parameter"


class UnsupportedSchema(InvalidRequest):
    code = "invalid_json_schema"


class UnsupportedGrammar(InvalidRequest):
    code = "invalid_grammar"


class ToolNotAvailable(InvalidRequest):
    code = "tool_unavailable"


class InvalidJson(InvalidRequest):
    code = "invalid_json"


class InvalidHttp(InvalidRequest):
    code = "invalid_http"


class EventsForgotten(InvalidRequest):
    code = "events_not_kept"


class PreviousResponseNotFound(InvalidRequest):
    code = "previous_response_not_found"


class ContextLengthExceeded(InvalidRequest):
    code = "context_length_exceeded"


class SocketLimitReached(InvalidRequest):
    code = "websocket_stream_limit_reached"


class InvalidApiKey(InvalidRequest):
    status = 401
    code = "invalid_api_key"


class ToolNotAllowed(InvalidRequest):
    status = 403
    code = "tool_not_allowed"


class OriginNotAllowed(InvalidRequest):
    status = 403
    code = "origin_not_allowed"


class HostNotAllowed(InvalidRequest):
    status = 403
    code = "host_not_allowed"


class RequestTimeout(InvalidRequest):
    status = 408
    code = "request_timeout"


class BodyTooLarge(InvalidRequest):
    status = 413
    code = "request_too_large"


class HeadTooLarge(InvalidRequest):
    status = 431
    code = "headers_too_large"


class NotFound(ApiError):
    status = 404
    type = "invalid_request_error"
    code = "not_found"
    may_pass = False


class ModelNotServed(NotFound):
    code = "model_not_found"


class ResponseNotFound(NotFound):
    code = "response_not_found"


class TraceNotFound(NotFound):
    code = "trace_not_found"


class DebuggingOff(NotFound):
    code = "debugging_off"


class CompletionNotFound(NotFound):
    code = "completion_not_found"


class ConversationNotFound(NotFound):
    code = "conversation_not_found"


class ItemNotFound(NotFound):
    code = "item_not_found"


class ContainerNotFound(NotFound):
    code = "container_not_found"


class ContainerFileNotFound(NotFound):
    code = "file_not_found"


class MethodNotAllowed(ApiError):
    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"
    may_pass = False

    def __init__(self, path: str, method: str, allowed: Sequence[str]) -> None:
        super().__init__(f"{path} does not support {method}; it supports {' and '.join(allowed)}.")
        self.allowed = allowed


class UpgradeRequired(ApiError):
    status = 426
    type = "invalid_request_error"
    code = "upgrade_required"
    may_pass = False


class TooManyContainers(ApiError):
    status = 429
    type = "rate_limit_error"
    code = "too_many_containers"
    may_pass = False  # until the client deletes one


class RateLimitExceeded(ApiError):
    """`retry_after`: seconds until the same request may succeed; None: not by waiting alone."""

    status = 429
    type = "requests"
    code = "rate_limit_exceeded"

    def __init__(self, message: str, *, param: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, param=param)
        self.retry_after = retry_after
        self.may_pass = retry_after is not None


class TokenLimitExceeded(RateLimitExceeded):
    type = "tokens"


class TooManyWrongKeys(RateLimitExceeded):
    code = "too_many_wrong_keys"


class EngineUnavailable(ApiError):
    status = 503
    code = "server_is_overloaded"

    def __init__(self, message: str, *, param: str | None = None, retry_after: float = 1.0) -> None:
        super().__init__(message, param=param)
        self.retry_after = retry_after  # seconds


class StoreUnavailable(ApiError):
    status = 503
    code = "store_unavailable"
    retry_after = 1.0  # seconds


class GenerationFailed(ApiError):
    pass


class RunInterrupted(ApiError):
    code = "response_interrupted"


class InvalidOutput(ApiError):
    code = "invalid_output"
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
