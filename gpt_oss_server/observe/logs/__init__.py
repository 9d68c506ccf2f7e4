"""The log: one line for each request, and the form of every line of the process.

Takes what the edge and the runs know of a request. Nothing of a prompt or an answer is logged here. It must
not know HTTP's code, nor an API.
"""
