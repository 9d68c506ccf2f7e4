"""The tools that this server offers, and their use by one request.

Takes settings and the tools that a request declares. Returns declarations for the prompt, recipients for the
decoder and callables for the turn. It must not know which API declared them, nor what an item looks like.
"""
