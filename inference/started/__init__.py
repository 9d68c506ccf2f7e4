"""Engines of other programs that the server itself starts, watches and ends.

Takes a model and an operator's options. Returns the address of a program on this machine, which a wire of
`inference/backends` then calls like one that runs elsewhere. It must not know what is sent to the program.
"""
