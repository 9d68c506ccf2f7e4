"""Declared functions, requests for them, and what the model thinks before it calls one.

Words come in; sets of declarations, requests and thoughts go out. It must not know a whole conversation.
"""
