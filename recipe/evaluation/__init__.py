"""Scores a trained model: exact answers on held-out conversations, and comparisons of states.

Takes a model and returns scores. It must not train.
"""
