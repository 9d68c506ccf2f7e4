"""The models: checkpoints, weights and the forward pass.

Takes a checkpoint's files and returns a model that computes logits. It must not know requests or scheduling.
"""
