"""The tools of a request: those that the client runs, and those that the server hosts.

Tools as clients declare them come in. Declarations for the prompt, recipients for the decoder and callables
for the turn go out. It must not know which API declared them.
"""
