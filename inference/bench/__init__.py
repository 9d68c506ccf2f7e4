"""How fast the model runs on this machine, beside what the machine could do: `python -m inference.bench`."""
