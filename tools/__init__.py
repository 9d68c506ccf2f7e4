"""Tools that run in mid-generation (browser, python, MCP). They know neither the server nor inference."""
