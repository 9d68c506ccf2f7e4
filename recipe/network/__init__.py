"""The network for training: batched, differentiable, and with the same numbers as in serving.

Takes a shape; returns modules with initial weights. It must not know conversations or schedules.
"""
