"""Output of the commands in a terminal, and questions to the user.

Takes text and stream events, and writes lines to a terminal. It must not know any command.
"""
