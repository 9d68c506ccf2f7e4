"""Tools that run during a generation (browser, python, MCP). They know neither the server nor inference."""
