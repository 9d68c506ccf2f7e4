"""Training: conversations to batches, batches to steps, and a run to the shipped file.

Takes conversations and a network; writes a run's checkpoint and, at the end, the compact file. It must not
know how a model is scored.
"""
