"""The Harmony format: text to tokens and tokens to events.

Messages come in and prompts go out; sampled tokens come in and decoder events go out. It must not know
engines, HTTP or any API.
"""
