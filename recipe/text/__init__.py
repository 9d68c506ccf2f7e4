"""Words, their meanings, and conversations as tokens.

Takes the stock and the vocabulary; returns words, values and rendered conversations. It must not know skills
or networks.
"""
