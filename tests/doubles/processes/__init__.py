"""The command in processes of its own, for tests."""
