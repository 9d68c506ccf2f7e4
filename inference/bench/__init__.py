"""Compares the model's speed on this machine with what the machine can reach: `python -m inference.bench`."""
