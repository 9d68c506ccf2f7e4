"""The model's skills: one file per kind of conversation, and `data`, which mixes them.

Takes words and functions; returns conversations. It must not know how they are trained on.
"""
