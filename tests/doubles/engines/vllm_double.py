"""A vLLM server with its traps, as a real one showed them."""

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gpt_oss_server.harmony.encoding import load_encoding
from tests.doubles.engines.http_double import HttpDouble, Refusal

END = 200002  # it stops there whatever a request wants
DEFAULT_LIMIT = 16
MOST_LOGPROBS = 20


class VllmDouble(HttpDouble):
    ending = b"data: [DONE]\n\n"
    has_ids = True
    counts_cached = True  # --enable-prompt-tokens-details
    at_once = 1  # tokens of one chunk
    aborts_after: int | None = None  # tokens, then the scheduler gives the request up
    fails_after: int | None = None  # tokens, then an error in the stream
    misreads = False
    takes_grammars = True

    def answer(self, path: str, body: Any) -> Any:
        match path:
            case "/version":
                return {"version": "0.32.0"}
            case "/v1/models":
                return {"data": [{"id": self.name, "max_model_len": self.context}]}
            case "/tokenize":
                tokens = load_encoding().encode_special(body["prompt"])
                return {"count": len(tokens), "max_model_len": self.context, "tokens": tokens}
            case "/v1/completions":
                return self._completion(body)
        raise Refusal(404, {"detail": "Not Found"})

    def _completion(self, body: Any) -> Any:
        self._check(body)
        tokens, end, reason = self._sampled(body)
        if body.get("stream"):
            return self._chunks(body, tokens, end, reason)
        return {"choices": [{"text": "?", "finish_reason": end}]}

    def _check(self, body: Any) -> None:
        wrong = {
            "model": body["model"] != self.name,
            "input_tokens": len(body["prompt"]) >= self.context,
            "max_tokens": body.get("max_tokens", DEFAULT_LIMIT) < 1,
            "min_tokens": body.get("min_tokens", 0) > body.get("max_tokens", DEFAULT_LIMIT),
            "temperature": not 0 <= body.get("temperature", 1.0) <= 2,
            "grammar": "structured_outputs" in body and not self.takes_grammars,
            "cache_salt": body.get("cache_salt") == "",
            "priority": body.get("priority", 0) != 0,
            "logprobs": (body.get("logprobs") or 0) > MOST_LOGPROBS,
            "logit_bias": any(abs(bias) > 100 for bias in body.get("logit_bias", {}).values()),
        }
        for name, holds in wrong.items():
            if holds:
                error = {"message": f"bad {name}", "type": "BadRequestError", "param": name, "code": 400}
                raise Refusal(400, {"error": error})

    def _sampled(self, body: Any) -> tuple[list[int], str, int | None]:
        limit, least = body.get("max_tokens", DEFAULT_LIMIT), body.get("min_tokens", 0)
        found: list[int] = []
        for token in self.continued(body["prompt"], body, limit):
            found.append(token)
            if len(found) > least and token in body.get("stop_token_ids", ()):
                return found, "stop", token
            if token == END:
                return found, "stop", None
        return found, "length", None

    def pick(self, tokens: Sequence[int], body: Any) -> int:
        token = self.model(tokens)
        if body.get("temperature", 1.0) > 0:
            # The random numbers go on from the beginning of a request, not of a text.
            token = random.Random(f"{body.get('seed')} {len(tokens) - len(body['prompt'])}").randrange(5000)
        while body.get("logit_bias", {}).get(str(token)) == -100:
            token = (token + 1) % 5000
        return token

    def _chunks(
        self, body: Any, tokens: Sequence[int], end: str, reason: int | None
    ) -> Iterator[dict[str, Any]]:
        for begin in range(0, len(tokens), self.at_once):
            if self.fails_after is not None and begin >= self.fails_after:
                yield {"error": {"message": "CUDA error", "type": "InternalServerError", "code": 500}}
                return
            if self.aborts_after is not None and begin >= self.aborts_after:
                yield _chunk([], "abort")
                return
            part = list(tokens[begin : begin + self.at_once])
            is_last = begin + self.at_once >= len(tokens)
            chunk = _chunk(part, end if is_last else None, reason if is_last else None)
            choice = chunk["choices"][0]
            if not (body.get("return_token_ids") and self.has_ids):
                choice["token_ids"] = None
            elif begin == 0:
                choice["prompt_token_ids"] = [0] if self.misreads else body["prompt"]
            if body.get("logprobs") is not None:
                choice["logprobs"] = self._scores([*body["prompt"], *tokens[:begin]], part, body)
            yield chunk
        if body.get("stream_options", {}).get("include_usage"):
            details = {"cached_tokens": 3} if self.counts_cached else None
            yield {"choices": [], "usage": {"completion_tokens": 1, "prompt_tokens_details": details}}

    def _scores(self, before: Sequence[int], part: Sequence[int], body: Any) -> dict[str, Any]:
        scores: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": []}
        for place, token in enumerate(part):
            likeliest = self.model([*before, *part[:place]])
            shown = body.get("logprob_token_ids") or range(likeliest, likeliest + body["logprobs"])
            likely = {f"token_id:{each}": -0.5 - abs(each - likeliest) for each in shown}
            logprob = -0.5 if token == likeliest else -9.0
            scores["tokens"].append(f"token_id:{token}")
            scores["token_logprobs"].append(logprob)
            scores["top_logprobs"].append({f"token_id:{token}": logprob} | likely)
        return scores


def _chunk(tokens: list[int], end: str | None, reason: int | None = None) -> dict[str, Any]:
    choice = {"text": "?", "token_ids": tokens, "finish_reason": end, "stop_reason": reason}
    return {"choices": [choice]}


@dataclass
class Killable:
    port: int
    process: subprocess.Popen[str]

    @property
    def model(self) -> str:
        return f"vllm:http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def start_again(self) -> None:
        self.process = _started(self.port)


@contextmanager
def killable_vllm() -> Iterator[Killable]:
    process = _started(0)
    assert process.stdout is not None
    engine = Killable(int(process.stdout.readline()), process)
    try:
        yield engine
    finally:
        engine.kill()


def _started(port: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.doubles.engines.vllm_double", str(port)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def _serve(port: int) -> None:
    double = VllmDouble()
    server = await asyncio.start_server(double._serve, "127.0.0.1", port)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
