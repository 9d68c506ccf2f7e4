"""The tiers below the engine's memory: blocks of keys and values in memory of the machine, and in a folder.

Takes blocks by their names, and returns them when a prompt begins with the same tokens, after a restart too.
It must not know sequences, tokens or layers.
"""
