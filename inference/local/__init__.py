"""The engine that runs a model in this process, on a thread of its own.

Takes prompts from the event loop and yields steps. It must not know layers, Harmony or HTTP.
"""
