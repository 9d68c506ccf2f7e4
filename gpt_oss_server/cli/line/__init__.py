"""The words of a command line: settings as flags, the model as a word, and corrections of wrong words.

It must not know a command.
"""
