"""Output of the commands in a terminal, and questions to the user. It must not know any command."""
