"""The Chat Completions API.

Request bodies come in, chunks and completions go out. It must not know the Responses API.
"""
