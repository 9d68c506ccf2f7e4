"""Sample tokens from an engine, and read what they say."""

import asyncio

import inference
from gpt_oss_server.harmony.encoding import load_encoding

encoding = load_encoding()
prompt = encoding.encode_special("<|start|>user<|message|>Hello!<|end|><|start|>assistant")


async def main() -> None:
    engine = inference.load("tiny")
    sampled: list[int] = []
    async for step in engine.generate(prompt, inference.Sampling(temperature=0, max_tokens=8)):
        sampled += step.tokens
    await engine.close()
    print(encoding.decode(sampled), step.finish)


asyncio.run(main())
# prints: <|channel|>final<|message|>Hello! How can I length
