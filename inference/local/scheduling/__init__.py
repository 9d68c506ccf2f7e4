"""Decides which generations take part in the next step, and where their keys and values lie.

Takes sequences and the outcomes of steps, and returns plans of steps. Pure Python: it must not know tensors
or models.
"""
