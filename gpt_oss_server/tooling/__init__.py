"""The tools of a request: those that the client runs, and those that the server hosts.

Takes tools as clients declare them. Returns declarations for the prompt, recipients for the decoder and
callables for the turn. It must not know which API declared them.
"""
