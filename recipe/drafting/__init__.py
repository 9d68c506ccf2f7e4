"""A draft head for the embedded model: trained on the model's hidden states, written as published heads are.

Takes conversations of the recipe and the model; writes a folder for `--speculation eagle:FOLDER` and measures
it. It must not know how the engine uses a head.
"""
