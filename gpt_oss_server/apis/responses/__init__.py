"""The Responses API.

Takes request bodies and returns stream events, responses and conversations. HTTP stays in `api`,
`conversations_api` and `socket`; the other modules work without it. It must not know the chat API.
"""
