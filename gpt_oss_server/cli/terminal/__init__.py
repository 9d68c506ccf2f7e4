"""What the commands show in a terminal and ask there.

Text and stream events come in, lines of a terminal go out. It must not know any command.
"""
