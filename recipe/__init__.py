"""The recipe of the embedded model: what it is trained on, how it is trained, and how it is measured.

Nothing of the installed package imports it, and it is not in the wheel. The commands are in the model's card,
`inference/tiny/README.md`; what was tried is in `HISTORY.md`. `stock/` holds the texts that conversations are
made of.
"""
