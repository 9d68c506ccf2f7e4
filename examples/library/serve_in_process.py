"""Use the server within a program, without a port. `uvicorn.run(app)` would serve it on one."""

from starlette.testclient import TestClient

import inference
from gpt_oss_server.app import create_app
from gpt_oss_server.settings import Settings

app = create_app(inference.load("tiny"), Settings(python="off"))
with TestClient(app, base_url="http://127.0.0.1") as client:
    response = client.post("/v1/responses", json={"input": "Hello!", "temperature": 0}).json()
print(response["status"], response["usage"]["input_tokens"])
# prints: completed 69
