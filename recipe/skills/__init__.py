"""What the model can do: one file per kind of conversation, and `data`, which mixes them.

Words and functions come in, conversations go out. It must not know how they are trained on.
"""
