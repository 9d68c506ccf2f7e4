"""The words of a command line: settings as flags, the model as a word, and corrections of wrong words.

Takes parsers, words and the table of settings. Returns flags, settings and sentences. It must not
know a command.
"""
