"""An SGLang server with its traps, as the source of its version 0.5.23 has them."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from gpt_oss_server.harmony.encoding import load_encoding
from tests.doubles.engines.http_double import HttpDouble, Model, Refusal, some_model

END = 200002  # it stops there whatever a request wants
DEFAULT_LIMIT = 128
_SPARE = 6  # its longest prompt is shorter than the context by so many tokens
_KNOWN = """
max_new_tokens stop stop_token_ids stop_regex temperature top_p top_k min_p frequency_penalty presence_penalty
repetition_penalty min_new_tokens n json_schema regex ebnf structural_tag ignore_eos skip_special_tokens
spaces_between_special_tokens no_stop_trim stream_interval logit_bias sampling_seed custom_params beam_width
watermark choice
"""


class SglangDouble(HttpDouble):
    ending = b"data: [DONE]\n\n"

    def __init__(self, model: Model = some_model, context: int = 606) -> None:
        super().__init__(model, context)
        self.has_ids = True
        self.incremental = False  # --incremental-streaming-output
        self.hurries = False  # a chunk that repeats has tokens that its count does not include yet
        self.seeds = False  # --enable-deterministic-inference
        self.describes_itself = True  # a router has no /server_info
        self.admin_key: str | None = None  # --admin-api-key
        self.at_once = 1  # tokens of one chunk
        self.aborts_after: int | None = None  # tokens, then the last chunk's reason is `abort`
        self.abort: dict[str, Any] = {"type": "abort", "message": "Abort in waiting queue"}
        self.truncates = False  # --allow-auto-truncate, with a prompt that is too long
        self.loses_tokens = False
        self.takes_grammars = True
        self.parses_reasoning = False  # --reasoning-parser gpt-oss
        self.unbound = 0  # requests whose reasoning no grammar would have bound
        self.aborted: list[str] = []

    def answer(self, path: str, body: Any) -> Any:
        match path:
            case "/model_info":
                return {"model_path": "/models/some", "is_generation": True}
            case "/server_info" if self.describes_itself:
                return {
                    "max_req_input_len": self.context - _SPARE,
                    "incremental_streaming_output": self.incremental,
                    "enable_deterministic_inference": self.seeds,
                }
            case "/v1/models":
                return {"data": [{"id": self.name, "max_model_len": self.context}]}
            case "/tokenize":
                tokens = load_encoding().encode_special(body["prompt"])
                return {"tokens": tokens, "count": len(tokens), "max_model_len": self.context}
            case "/abort_request":
                return self._abort(body)
            case "/generate":
                return self._generate(body)
        raise Refusal(404, {"object": "error", "message": "Not Found", "type": "404", "code": 404})

    def _abort(self, body: Any) -> bytes:
        if self.admin_key is not None and f"bearer {self.admin_key}" != self.headers[-1].get("authorization"):
            raise Refusal(401, {"error": "Unauthorized"})
        self.aborted.append(body["rid"])
        return b""

    def _generate(self, body: Any) -> Any:
        wanted = body["sampling_params"]
        if unknown := set(wanted) - set(_KNOWN.split()):
            raise Refusal(400, {"error": f"sampling_params: unknown field {min(unknown)!r}"})
        if not body.get("stream"):
            return {"text": "?", "output_ids": [1], "meta_info": {"finish_reason": {"type": "length"}}}
        # What is wrong with a request is reported in the stream, whose status is 200.
        if problem := self._problem(body["input_ids"], wanted):
            return iter([{"error": {"message": problem, "type": "invalid_request_error", "code": 400}}])
        if "ebnf" in wanted:
            self.unbound += self.parses_reasoning and body.get("require_reasoning") is not False
            if not self.takes_grammars:
                reason = {"type": "abort", "message": "Failed to compile ebnf grammar", "status_code": 400}
                return iter([_chunk([], reason, {"prompt_tokens": 1, "completion_tokens": 0})])
        return self._chunks(body, *self._sampled(body["input_ids"], wanted))

    def _problem(self, prompt: Sequence[int], wanted: Any) -> str | None:
        limit = wanted.get("max_new_tokens", DEFAULT_LIMIT)
        wrong = {
            "The input is longer than the model's context length": len(prompt) >= self.context - _SPARE,
            "Requested token count exceeds the model's context": len(prompt) + limit > self.context,
            "temperature must be non-negative": wanted.get("temperature", 1.0) < 0,
            "top_k must be -1 or at least 1": wanted.get("top_k", -1) == 0,
            "frequency_penalty must be in [-2, 2]": abs(wanted.get("frequency_penalty", 0)) > 2,
            "min_new_tokens must be in [0, max_new_tokens]": wanted.get("min_new_tokens", 0) > limit,
        }
        return next((problem for problem, holds in wrong.items() if holds), None)

    def _sampled(self, prompt: Sequence[int], wanted: Any) -> tuple[list[int], dict[str, Any]]:
        limit, least = wanted.get("max_new_tokens", DEFAULT_LIMIT), wanted.get("min_new_tokens", 0)
        found: list[int] = []
        for token in self.continued(prompt, wanted | {"before": len(prompt)}, limit):
            if len(found) < least and token == END:
                token = END + 1
            found.append(token)
            if token == END or token in wanted.get("stop_token_ids", ()):
                if not wanted.get("no_stop_trim"):
                    found.pop()
                return found, {"type": "stop", "matched": token}
        return found, {"type": "length", "length": len(found)}

    def pick(self, tokens: Sequence[int], body: Any) -> int:
        token = self.model(tokens)
        if body.get("temperature", 1.0) > 0:
            # The random numbers go on from the beginning of a request, not of a text.
            seed = f"{body.get('sampling_seed')} {len(tokens) - body['before']}"
            token = random.Random(seed).randrange(5000)
        while body.get("logit_bias", {}).get(str(token), 0) <= -100:
            token = (token + 1) % 5000
        return token

    def _chunks(self, body: Any, tokens: Sequence[int], reason: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for begin in range(0, len(tokens), self.at_once):
            if self.aborts_after is not None and begin >= self.aborts_after:
                # As one that the scheduler gave up while it waited: without counts.
                yield {"text": "", "output_ids": [], "meta_info": {"id": "?", "finish_reason": self.abort}}
                return
            end = min(begin + self.at_once, len(tokens))
            start = begin if self.incremental else 0
            shown = end if self.incremental or not self.hurries else min(end + 2, len(tokens))
            meta = {"id": body.get("rid"), "completion_tokens": end, "cached_tokens": 3}
            meta["prompt_tokens"] = len(body["input_ids"]) - self.truncates
            if body.get("return_logprob"):
                meta |= self._scores(body, tokens, start, shown)
            found = list(tokens[start:shown])
            if self.loses_tokens and begin:
                found = found[1:]
            chunk = _chunk(found, reason if end == len(tokens) else None, meta)
            if not self.has_ids:
                del chunk["output_ids"]
            yield chunk

    def _scores(self, body: Any, tokens: Sequence[int], start: int, end: int) -> dict[str, Any]:
        sampled, top = [], []
        for place in range(start, end):
            likeliest = self.model([*body["input_ids"], *tokens[:place]])
            sampled.append([-0.5 if tokens[place] == likeliest else -9.0, tokens[place], None])
            count = body.get("top_logprobs_num", 0)
            top.append([[-0.5 - rank, likeliest + rank, None] for rank in range(count)])
        return {"output_token_logprobs": sampled} | ({"output_top_logprobs": top} if top and top[0] else {})


def _chunk(tokens: list[int], reason: dict[str, Any] | None, meta: dict[str, Any]) -> dict[str, Any]:
    return {"text": "?", "output_ids": tokens, "meta_info": {**meta, "finish_reason": reason}}
