"""Writes checkpoints in the formats of other programs.

Takes a checkpoint's folder and the bytes of each token. Writes a file that llama.cpp loads. It runs no model
and knows neither the tokenizer nor Harmony: the caller passes the vocabulary.
"""
