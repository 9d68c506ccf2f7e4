"""400 questions about one input: a request for decisions beside as many chat requests, in one run."""

import asyncio
import time

import openai
import pytest

import inference
from tests.doubles.serving import serving

pytestmark = pytest.mark.benchmark
QUESTIONS, TOGETHER, RATIO = 400, 64, 20
INPUT = " ".join(f"On day {day} the customer wrote that order {day * 7} arrived late." for day in range(45))


async def test_decisions_are_20_times_as_fast_as_chat_requests() -> None:
    statements = [f"Order {number * 7} arrived late." for number in range(QUESTIONS)]
    with serving(inference.load("tiny", progress=False)) as url:
        client = openai.AsyncOpenAI(base_url=url, api_key="any", timeout=3_000)
        began = time.perf_counter()
        questions = [{"type": "predicate", "instructions": statement} for statement in statements]
        await client.decisions.create(model="tiny", input=INPUT, questions=questions)  # type: ignore[arg-type]
        decided = time.perf_counter() - began
        turns = asyncio.Semaphore(TOGETHER)

        async def asked(statement: str) -> int:
            words = f"{INPUT}\n\nIs this true of the above?\n\n{statement}\n\nAnswer with yes or no."
            async with turns:
                made = await client.chat.completions.create(
                    model="tiny", messages=[{"role": "user", "content": words}]
                )
            return made.usage.completion_tokens

        began = time.perf_counter()
        tokens = await asyncio.gather(*map(asked, statements))
        chatted = time.perf_counter() - began
        await client.close()
    mean = sum(tokens) / QUESTIONS
    print(f"\ndecisions {decided:.1f} s, chat {chatted:.0f} s with {mean:.0f} tokens an answer")
    assert chatted / decided >= RATIO
