"""A llama-server with its traps, as a real one showed them."""

import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

from tests.doubles.engines.http_double import HttpDouble, Model, Refusal, some_model

ENDS = frozenset({200002, 200012, 199999})  # it stops there whatever a request wants
STALE = 24  # the count of the slot's last task, which the first chunks of progress still show


def leaves_a_character_unfinished(token: int) -> bool:
    return token % 7 == 3


class LlamaDouble(HttpDouble):
    def __init__(self, model: Model = some_model, context: int = 600, vocabulary: int = 201_088) -> None:
        super().__init__(model, context)
        self.vocabulary = vocabulary
        self.wavers = False  # a repeated request goes another way
        self.has_ids = True
        self.refuses = ""  # a field that this version does not take

    def answer(self, path: str, body: Any) -> Any:
        match path:
            case "/props":
                return {"default_generation_settings": {"n_ctx": self.context}, "total_slots": 4}
            case "/v1/models":
                return {"data": [{"id": f"{self.name}.gguf", "meta": {"n_vocab": self.vocabulary}}]}
            case "/tokenize":
                from gpt_oss_server.harmony.encoding import load_encoding  # takes a second

                return {"tokens": load_encoding().encode_special(body["content"])}
            case "/completion":
                return self._completion(body)
        raise Refusal(404, {"error": {"code": 404, "message": "File Not Found"}})

    def _completion(self, body: Any) -> Any:
        prompt = body["prompt"]
        if not 0 <= body.get("repeat_last_n", 0) < 2**31:
            raise bad_field("repeat_last_n", "must be between 0 and 2147483647")
        if self.refuses in body:
            raise bad_field(self.refuses, "is not supported")
        if len(prompt) >= self.context:
            message = f"request ({len(prompt)} tokens) exceeds the available context size"
            error = {"code": 400, "message": message, "type": "exceed_context_size_error"}
            raise Refusal(400, {"error": error})
        tokens, end = self._sampled(prompt, body)
        if tokens and leaves_a_character_unfinished(tokens[-1]) and "chat_parser" not in body:
            message = "The model produced output that does not match the expected Content-only format"
            raise Refusal(500, {"error": {"code": 500, "message": message, "type": "server_error"}})
        if body.get("stream"):
            return self._chunks(prompt, body, tokens, end)
        shown = [token for token in tokens if not leaves_a_character_unfinished(token)]
        scores = [self.scores(token, prompt, body) for token in shown]
        last = {"stop": True, "stop_type": end, "completion_probabilities": scores}
        return _chunk(tokens if self.has_ids else [], len(tokens)) | last

    def _sampled(self, prompt: Sequence[int], body: Any) -> tuple[list[int], str]:
        limit = max(1, body["n_predict"])
        found: list[int] = []
        room = self.context - 1 - len(prompt)
        for token in self.continued(prompt, body, min(limit, room)):
            found.append(token)
            if token in ENDS:
                return found, "eos"
        return found, "limit"

    def pick(self, tokens: Sequence[int], body: Any) -> int:
        token = self.model(tokens)
        if body.get("temperature", 0.0) > 0:
            wavering = self.wavers and not body.get("stream")
            token = random.Random(f"{body['seed']} {list(tokens)} {wavering}").randrange(5000)
        forced = [each for each, bias in body.get("logit_bias", ()) if bias is not False and bias >= 100]
        banned = {each for each, bias in body.get("logit_bias", ()) if bias is False}
        token = forced[0] if forced else token
        while token in banned:
            token = (token + 1) % 5000
        return token

    def _chunks(
        self, prompt: Sequence[int], body: Any, tokens: Sequence[int], end: str
    ) -> Iterator[dict[str, Any]]:
        if body.get("return_progress"):
            for done in (0, len(prompt)):
                progress = {"total": len(prompt), "cache": 3, "processed": done}
                yield _chunk([0], STALE) | {"prompt_progress": progress}
        for count, token in enumerate(tokens, start=1):
            if leaves_a_character_unfinished(token):
                continue
            chunk = _chunk([token] if self.has_ids else [], count)
            if body.get("n_probs"):
                before = [*prompt, *tokens[: count - 1]]
                chunk["completion_probabilities"] = [self.scores(token, before, body)]
            yield chunk
        yield _chunk([], len(tokens)) | {"stop": True, "stop_type": end}

    def scores(self, token: int, before: Sequence[int], body: Any) -> dict[str, Any]:
        """Of a token and the likeliest ones, before what a request forces or bans."""
        likeliest = self.model(before)
        if body.get("post_sampling_probs"):
            lifted = [each for each, bias in body["logit_bias"] if bias == 100]
            shares = [{"id": each, "prob": math.exp(-0.5 - abs(each - likeliest))} for each in lifted]
            return {"id": token, "prob": 1.0, "top_probs": shares}
        count = min(body.get("n_probs", 0), 400)
        top = [{"id": likeliest + place, "logprob": -0.5 - place} for place in range(count)]
        return {"id": token, "logprob": -0.5 if token == likeliest else -9.0, "top_logprobs": top}


def bad_field(name: str, why: str) -> Refusal:
    message = f'Field "{name}" {why}'
    return Refusal(400, {"error": {"code": 400, "message": message, "type": "invalid_request_error"}})


def _chunk(tokens: list[int], count: int) -> dict[str, Any]:
    return {"index": 0, "content": "?", "tokens": tokens, "stop": False, "tokens_predicted": count}
