"""What an operator needs of a server in use: figures, traces, limits. One room for each.

Takes what the other rooms report of their work. Nothing here changes an answer.
"""
