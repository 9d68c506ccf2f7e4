"""The Harmony format: text to tokens, and tokens to events.

Takes messages and returns prompts; takes sampled tokens and returns decoder events. It must not know
engines, HTTP or any API.
"""
