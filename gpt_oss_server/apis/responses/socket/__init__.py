"""The WebSocket mode of the Responses API.

Takes frames and returns the stream events of several runs over one connection. It must not know how a run
works.
"""
