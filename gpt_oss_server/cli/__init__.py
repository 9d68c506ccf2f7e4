"""The command line.

Words come in, an exit code goes out. `main` names the commands and loads them; `house` checks that Python
found this project's own packages. It must not know what a command does.
"""
