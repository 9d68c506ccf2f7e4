"""Input items: reads the items that a client sends into parts of a conversation.

Takes a request's items and returns segments for the prompt, pending calls, approvals and loaded tools. It
must not know how a prompt is assembled.
"""
