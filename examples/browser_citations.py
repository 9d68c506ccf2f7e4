"""Answers with citations from a folder of documents. Needs no key and no network.

Start the server with: gpt-oss-server serve --browser local:examples/documents
"""

import tour

client = tour.client("to read a page and cite it well")

response = client.responses.create(
    input="How tall is the lighthouse of Skarvik? Search the documents and cite what you find.",
    tools=[{"type": "web_search"}],
    include=["web_search_call.action.sources"],
)

for item in response.output:
    if item.type == "web_search_call":
        action = item.action
        match action.type:
            case "search":
                found = ", ".join(source.url for source in action.sources or [])
                print(f"Searched for {action.query!r}: {found}")
            case "open_page":
                print(f"Opened {action.url}")
            case "find_in_page":
                print(f"Looked for {action.pattern!r} in {action.url}")
    elif item.type == "message":
        for part in item.content:
            print("Answer:", part.text)
            for note in part.annotations:
                cited = part.text[note.start_index : note.end_index]
                print(f"Cited: {note.title} at {note.url}, as {cited.strip()}")
