"""A background run: it continues when the connection is lost, and its events can be read from there on."""

import tour

client = tour.client()
LOST_AFTER = 8  # events


def show(event):
    if event.type == "response.output_item.added":
        print(f"\n[{event.item.type}] ", end="")
    if event.type in ("response.reasoning_text.delta", "response.output_text.delta"):
        print(event.delta, end="", flush=True)


running = client.responses.create(input="Who are you?", background=True, stream=True)
for event in running:
    show(event)
    if event.type == "response.created":
        response_id = event.response.id
    last = event.sequence_number
    if last >= LOST_AFTER:
        break
running.close()
print(f"\n[The connection is lost after event {last}. The run continues: {response_id}]")

for event in client.responses.retrieve(response_id, stream=True, starting_after=last):
    show(event)
print(f"\n[Resumed after event {last}, up to event {event.sequence_number}]")
print("Status:", client.responses.retrieve(response_id).status)
