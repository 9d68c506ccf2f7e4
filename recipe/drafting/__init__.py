"""A draft head for the embedded model: trained on the model's own hidden states, written as published heads are.

Takes conversations of the recipe and the model; writes a folder for `--speculation eagle:FOLDER`. It must not
know how the server uses the head.
"""
