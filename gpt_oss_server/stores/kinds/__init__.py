"""The kinds of stores, one row each; opens the store that the `--store` setting names.

Takes the settings. Returns the stores of responses, conversations and the events of background runs. It must
not know how a store works.
"""
