"""The WebSocket mode of the Responses API.

Frames come in, stream events of several runs over one connection go out. It must not know how a run works.
"""
