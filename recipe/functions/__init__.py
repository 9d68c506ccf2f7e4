"""Declared functions, requests for them, and the model's thoughts before it calls one.

Takes words; returns sets of declarations, requests and thoughts. It must not know whole conversations.
"""
