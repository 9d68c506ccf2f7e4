"""Completion of the command line in bash, zsh and fish.

Takes the parsers of the commands. Returns a script for a shell, which then completes without starting this
program. It must not know a command.
"""
