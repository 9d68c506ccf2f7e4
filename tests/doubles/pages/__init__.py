"""What the pages of docs/ state, for tests that compare it with the server."""
