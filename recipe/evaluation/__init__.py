"""What a trained model can do: exact answers on held-out conversations, and states compared.

A model comes in, scores go out. Nothing is trained here.
"""
