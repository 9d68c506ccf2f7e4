"""The Response object: it has its top-level keys from the first event on, with null for unset values."""

from typing import Any

from gpt_oss_server.apis.responses.request import CreateResponse
from gpt_oss_server.http.shared_fields import shown_metadata
from gpt_oss_server.runs.usage import Usage
from gpt_oss_server.runs.work import Work
from inference.engine import Sampling


def new_response(
    request: CreateResponse,
    work: Work,
    *,
    response_id: str,
    tools: list[dict[str, Any]],
    effort: str,
    sampling: Sampling,
    store: bool,
) -> dict[str, Any]:
    background = bool(request.background) and store
    # Open Responses requires the key `user`; OpenAI's document allows no null there.
    has_user = request.user is not None or work.model.settings.event_names == "open-responses"
    return {
        "id": response_id,
        "object": "response",
        "created_at": int(work.clock()),
        "completed_at": None,
        "conversation": None if request.conversation is None else {"id": request.conversation_id},
        "status": "queued" if background else "in_progress",
        "background": background,
        "error": None,
        "incomplete_details": None,
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": request.max_tool_calls,
        "model": request.model or work.model.name,
        "output": [],
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "previous_response_id": request.previous_response_id,
        "prompt": None if request.prompt is None else request.prompt.model_dump(),
        "prompt_cache_key": request.prompt_cache_key,
        "prompt_cache_retention": request.prompt_cache_retention,
        "reasoning": {"effort": effort, "summary": request.summary, "context": request.reasoning_context},
        "safety_identifier": request.safety_identifier,
        "service_tier": request.service_tier or "default",
        "store": store,
        "temperature": sampling.temperature,
        "text": _text(request),
        "tool_choice": request.tool_choice or "auto",
        "tools": tools,
        "top_logprobs": request.top_logprobs or 0,
        "top_p": sampling.top_p,
        "presence_penalty": request.presence_penalty or 0.0,
        "frequency_penalty": request.frequency_penalty or 0.0,
        "truncation": request.truncation or "disabled",
        "usage": None,
        **({"user": request.user} if has_user else {}),
        "metadata": shown_metadata(request.metadata),
    }


def _text(request: CreateResponse) -> dict[str, Any]:
    wanted = request.text.format if request.text else None
    text: dict[str, Any] = {"format": wanted or {"type": "text"}}
    if request.verbosity:
        text["verbosity"] = request.verbosity
    return text


def shown_usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.output,
        "output_tokens_details": {
            "reasoning_tokens": usage.reasoning,
            "tool_output_tokens": usage.results,
            **usage.predicted,
        },
        "total_tokens": usage.total,
    }
