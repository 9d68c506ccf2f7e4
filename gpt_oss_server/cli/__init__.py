"""The command line: takes its words and returns an exit code. `main` must not know what a command does."""
