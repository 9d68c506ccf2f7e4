"""The kinds of stores, one row each; opens the store that `--store` names. It must not know how one works."""
