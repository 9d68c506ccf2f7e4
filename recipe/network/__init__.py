"""The network as it is trained: batched, differentiable, and the same numbers as when it serves.

A shape comes in, modules with their first weights go out. It must not know conversations or a schedule.
"""
