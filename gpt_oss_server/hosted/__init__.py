"""The tools that this server runs itself: one file each, and one line each in `table`.

A tool's file holds all that the server knows of it: how requests name it, how the settings enable it, how
the model calls it and how its calls are shown. Every other room reads the table. It must not know how a tool
does its work, nor which API a request came through.
"""
