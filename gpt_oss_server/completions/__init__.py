"""The plain completions API, and the endpoints that turn text to tokens and back.

Request bodies come in, chunks, completions and tokens go out. No Harmony is rendered: the prompt is the
client's. It must not know the Responses API.
"""
