"""Which generations take part in the next step, and where their keys and values lie.

Sequences and the outcomes of steps come in, plans of steps go out. Pure Python: it must not know a tensor
or a model.
"""
