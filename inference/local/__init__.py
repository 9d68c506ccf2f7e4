"""The engine that runs a model in this process, on a thread of its own.

Prompts come in from the event loop, steps go out. It must not know layers (the model's), Harmony or HTTP.
"""
