"""The terminal chat: reads messages, gets answers from a model here or a server, and keeps a record.

Takes the flags of `chat` and lines of text. Writes what `terminal` shows. It must not know how a server
works: a `talker` is all that it sees of one.
"""
