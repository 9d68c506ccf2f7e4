"""Three documents in a vector store, and questions whose answers are lines of them."""

import tour

QUESTIONS = (
    "When is the museum open in July?",
    "What does a child pay on the ferry?",
    "From how far away is the light seen?",
)
client = tour.client("to think of good words to search for")

store = client.vector_stores.create(name="Skarvik")
for path in sorted((tour.FOLDER / "documents").iterdir()):
    client.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=path)

for question in QUESTIONS:
    print(f"\n{question}")
    response = client.responses.create(
        input=question,
        tools=[{"type": "file_search", "vector_store_ids": [store.id]}],
        include=["file_search_call.results"],
    )
    for item in response.output:
        if item.type == "file_search_call":
            for found in item.results or []:
                print(f"Found with {item.queries}: {found.filename}")
        elif item.type == "message":
            for part in item.content:
                print("Answer:", part.text)
                print("Cited:", ", ".join(sorted({note.filename for note in part.annotations})))

client.vector_stores.delete(store.id)
