"""Give the application a store, and read what it keeps."""

import asyncio

from starlette.testclient import TestClient

import inference
from gpt_oss_server.app import create_app
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.memory import MemoryStore

store = MemoryStore()
app = create_app(inference.load("tiny"), Settings(python="off"), store=store)
with TestClient(app, base_url="http://127.0.0.1") as client:
    created = client.post("/v1/responses", json={"input": "Hello!"}).json()
    stored = asyncio.run(store.get(created["id"]))
print([item["type"] for item in stored.input_items], stored.response["status"])
# prints: ['message'] completed
