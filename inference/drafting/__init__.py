"""Draft heads (EAGLE-3): small networks that guess the next tokens from a model's hidden states.

Takes a folder and a model; returns a head that computes guesses. It must not know steps, sequences or the
scheduler, nor who checks the guesses.
"""
