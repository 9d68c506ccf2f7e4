"""Ask a question, and read the reasoning and the answer."""

import os
import sys

from openai import APIConnectionError, OpenAI

client = OpenAI(base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1"), api_key="unused")

try:
    response = client.responses.create(input="Who are you?", reasoning={"effort": "low"})
except APIConnectionError:
    sys.exit(f"No server answers at {client.base_url}. Start one in another terminal: make serve")

for item in response.output:
    if item.type == "reasoning":
        print("Reasoning:", *(part.text for part in item.content or []))
print("Answer:", response.output_text)
