"""Training: conversations to batches, batches to steps, and a run to the shipped file.

Conversations and a network come in; a run's checkpoint, and at the end the compact file, go out. It must not
know how a model is scored.
"""
