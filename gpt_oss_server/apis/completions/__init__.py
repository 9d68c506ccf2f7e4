"""The plain completions API, and the endpoints that turn text to tokens and back.

Takes request bodies and returns chunks, completions and tokens. It renders no Harmony: the client writes the
whole prompt. It must not know the Responses API.
"""
