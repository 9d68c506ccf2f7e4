"""The models: checkpoints, weights and the forward pass.

Files of a checkpoint come in, a model that computes logits goes out. It must not know requests or scheduling.
"""
