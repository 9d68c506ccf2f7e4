"""The command line.

Takes the words of a command line and returns an exit code. `main` names the commands and loads them; `house`
checks that Python found this project's own packages. It must not know what a command does.
"""
