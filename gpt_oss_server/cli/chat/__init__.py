"""The terminal chat: reads messages, gets answers from a model here or a server, and keeps a record.

It must not know how a server works: a `talker` is all that it sees of one.
"""
