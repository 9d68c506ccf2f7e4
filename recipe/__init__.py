"""The recipe of the embedded model: its training data, its training and its evaluation.

The installed package does not import it, and the wheel does not contain it. The model's card,
`inference/tiny/README.md`, has the commands; `HISTORY.md` has the experiments; `stock/` holds the texts that
conversations are made of.
"""
