"""What an operator checks on a machine before a server starts."""
