"""The Chat Completions API.

Takes request bodies and returns chunks and completions. It must not know the Responses API.
"""
