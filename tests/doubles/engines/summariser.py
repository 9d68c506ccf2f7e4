"""An engine that summarises on request, for tests of compaction."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from gpt_oss_server.harmony.encoding import Encoding
from inference.engine import EngineInfo, Finish, Sampling, Step

SUMMARY = (
    "<|channel|>analysis<|message|>What matters?<|end|>"
    "<|start|>assistant<|channel|>final<|message|>{}<|return|>"
)
ANSWER = "<|channel|>final<|message|>{}<|return|>"


class Summariser:
    """Summarises on request, otherwise returns its answers in order; keeps the prompts as text."""

    def __init__(
        self, encoding: Encoding, *answers: str, context: int = 131_072, summary: str = "They grow roses."
    ) -> None:
        self._encoding = encoding
        self._answers = list(answers or (ANSWER.format("Fine."),))
        self._summary = summary
        self.info = EngineInfo(name="summariser", context_length=context)
        self.prompts: list[str] = []
        self.summary_prompts: list[str] = []
        self.tokens: list[Sequence[int]] = []
        self.samplings: list[Sampling] = []

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        prompt = self._encoding.decode(tokens)
        if "Write the summary, and nothing else." in prompt.rpartition("<|start|>user")[2]:
            self.summary_prompts.append(prompt)
            text = SUMMARY.format(self._summary)
        else:
            self.prompts.append(prompt)
            text = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        self.tokens.append(tokens)
        self.samplings.append(sampling)
        made = self._encoding.encode_special(text)
        yield Step(tuple(made[: sampling.max_tokens]), Finish.STOP)

    async def close(self) -> None:
        pass
