"""The next token of one generation: its grammar's masks, its banned stop ids, and the draw.

Takes rows of logits; returns tokens and scores. It must not know sequences or runners.
"""
