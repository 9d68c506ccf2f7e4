"""POST /v1/completions, /tokenize and /detokenize, GET /tokenizer_info: reads requests, sends the answers."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from gpt_oss_server.apis.completions import tokenizer
from gpt_oss_server.apis.completions.request import CreateCompletion, parse_request, prompts_of, truncated
from gpt_oss_server.apis.completions.run import CompletionRun
from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.constraints.wanted import Wanted
from gpt_oss_server.content.answer_form import requested_answer
from gpt_oss_server.content.nested import flat_format
from gpt_oss_server.errors import UnsupportedField
from gpt_oss_server.http.body import read_json
from gpt_oss_server.http.fields import documented
from gpt_oss_server.http.large_work import in_thread_if_large, json_answer
from gpt_oss_server.http.unknown_fields import treat_unknown_fields, unknown_header
from gpt_oss_server.models.model import Model
from gpt_oss_server.runs.chunks import answer
from gpt_oss_server.runs.served import Served
from gpt_oss_server.turns.prompt import check_can_fit
from inference.grammar import Grammar


def completions_router(served: Served, chat_prompt: tokenizer.ChatPrompt) -> APIRouter:
    """`chat_prompt` renders the prompt of a chat request for /tokenize."""
    router = APIRouter()
    limit, keep_alive = served.settings.max_body_bytes, served.settings.keep_alive

    @router.post("/v1/completions", openapi_extra=documented(CreateCompletion))
    async def create(request: Request) -> Response:
        caller, body = await read_json(request, limit)
        run = await start(caller, body, served)
        headers = unknown_header(body, CreateCompletion, served.settings.unknown_fields)
        streams = bool(run.request.stream)
        return await answer(run, request, streams=streams, keep_alive=keep_alive, headers=headers)

    @router.post("/tokenize", openapi_extra=documented(tokenizer.TokenizeOptions))
    async def to_tokens(request: Request) -> Response:
        caller, body = await read_json(request, limit)
        answered = await tokenizer.tokenize(caller, body, served, chat_prompt)
        return await json_answer(answered, caller.body_size)

    @router.post("/detokenize", openapi_extra=documented(tokenizer.DetokenizeRequest))
    async def to_text(request: Request) -> Response:
        caller, body = await read_json(request, limit)
        size = caller.body_size
        answered = await in_thread_if_large(size, lambda: tokenizer.detokenize(caller, body, served), body)
        return await json_answer(answered, size)

    @router.get("/tokenizer_info")
    async def info() -> Response:
        return JSONResponse(tokenizer.tokenizer_info(served.models.first))

    return router


async def start(caller: Caller, body: object, served: Served) -> CompletionRun:
    """Does all work before the first token: after it returns, only the engine can fail."""
    size = caller.body_size
    request = await in_thread_if_large(size, lambda: parse_request(body), body)
    treat_unknown_fields(body, CreateCompletion, served.settings.unknown_fields)
    work = served.work(caller, request.model)
    model, info = work.model, work.model.info
    model.check_room()

    def encode() -> list[list[int]]:
        if isinstance(request.prompt, str) and request.truncate_prompt_tokens is None:
            check_can_fit(info.context_length, "prompt", request.prompt)
        most = served.settings.max_choices // (request.n or 1)
        prompts = prompts_of(request.prompt, model.encoding, info.vocab_size, most)
        return [truncated(prompt, request, info.context_length) for prompt in prompts]

    prompts = await in_thread_if_large(size, encode, request.prompt)
    grammar = await grammar_of(request, model, caller)
    choices = len(prompts) * (request.n or 1)
    most = choices * info.context_length
    spending = await caller.reserve(sum(map(len, prompts)), choices * request.limit, most)
    completion_id = work.new_id("cmpl", request.request_id).replace("_", "-", 1)
    return CompletionRun(request, prompts, served, work, completion_id, grammar, spending)


async def grammar_of(request: CreateCompletion, model: Model, caller: Caller) -> Grammar | None:
    answer = requested_answer(request.forms, *flat_format(request.response_format, "response_format"))
    wanted = Wanted(answer=answer.form)
    if not wanted.binds:
        return None
    param, info = wanted.param, model.info
    if not info.enforces_grammar:
        raise UnsupportedField.at(
            param,
            f"needs an engine that enforces grammars, which the model {info.name!r} does not. Leave it out.",
        )
    return await model.bound_plain(wanted, client=caller.client, owner=caller.owner)
