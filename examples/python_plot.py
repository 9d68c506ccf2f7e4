"""Python in a sandbox: the model computes and plots. Variables and files persist between turns.

The server needs a sandbox: bubblewrap on Linux (apt install bubblewrap), or Docker.
"""

import base64
from pathlib import Path

import tour
from openai import BadRequestError

client = tour.client("to write a program")
TOOLS = [{"type": "code_interpreter", "container": {"type": "auto"}}]


def ask(question, previous=None):
    response = client.responses.create(
        input=question, tools=TOOLS, previous_response_id=previous, include=["code_interpreter_call.outputs"]
    )
    for item in response.output:
        if item.type == "code_interpreter_call":
            show(item)
    print("Answer:", response.output_text)
    return response


def show(call):
    print("Ran:", call.code)
    for output in call.outputs or []:
        if output.type == "logs":
            print("Printed:", output.logs.rstrip())
        else:
            picture = Path("plot.png")
            picture.write_bytes(base64.b64decode(output.url.partition(",")[2]))
            print(f"Drew {picture}, {picture.stat().st_size} bytes")


try:
    first = ask("Plot the first ten square numbers, and save them as CSV.")
except BadRequestError as error:  # no sandbox: the message states what to install
    raise SystemExit(error.body["message"]) from None
second = ask("What is their sum?", previous=first.id)

# Files that the code wrote to /mnt/data can be downloaded; files can also be uploaded there.
for item in second.output:
    if item.type == "code_interpreter_call" and item.status == "completed":
        for file in client.containers.files.list(item.container_id):
            content = client.containers.files.content.retrieve(file.id, container_id=item.container_id)
            print(f"{file.path}: {content.read()!r}")
