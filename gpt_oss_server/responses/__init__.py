"""The Responses API.

Request bodies come in; stream events, responses and conversations go out. HTTP stays in `api`,
`conversations_api` and `socket`; the other modules work without it. It must not know the chat API.
"""
