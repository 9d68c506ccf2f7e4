"""The kinds of engines, by the names of their models: one file for each, and one row of `table`.

Takes the value of `--model` and an operator's options. Returns an `Engine` (`inference/engine.py`). What
local models share is in `inference/local`, and what other programs' servers share in `inference/remote`.
"""
