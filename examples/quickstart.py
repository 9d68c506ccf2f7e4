"""Ask a question, and read the reasoning and the answer."""

import os

from openai import OpenAI

client = OpenAI(base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1"), api_key="unused")

response = client.responses.create(input="Who are you?", reasoning={"effort": "low"})

for item in response.output:
    if item.type == "reasoning":
        print("Reasoning:", *(part.text for part in item.content or []))
print("Answer:", response.output_text)
