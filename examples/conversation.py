"""Two turns: the server keeps the history, the client sends only what is new."""

import tour

client = tour.client()

first = client.responses.create(input="My name is Ada.", instructions="Be brief.")
print("1:", first.output_text)

# Instructions are not inherited: send the instructions that apply to this turn.
second = client.responses.create(
    input="What is my name?", instructions="Be brief.", previous_response_id=first.id
)
print("2:", second.output_text)

# A stored response can be retrieved and deleted.
print("Stored:", client.responses.retrieve(second.id).status)
client.responses.delete(second.id)
