"""The content of messages, for both APIs.

Takes content parts, files and tool results, and returns text that the model can read. It must not know any
endpoint, and it fetches nothing.
"""
