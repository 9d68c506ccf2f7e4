"""Words, their meanings, and conversations as tokens.

The stock and the vocabulary come in; words, values and rendered conversations go out. It must not know a
skill or a network.
"""
