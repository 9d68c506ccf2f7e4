"""A small MCP server, for mcp_tools.py: it converts lengths."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("units", instructions="Converts lengths between units.")


@server.tool()
def nautical_miles(kilometres: float) -> str:
    """Convert kilometres to nautical miles."""
    return f"{kilometres / 1.852:.4g} nautical miles"


if __name__ == "__main__":
    server.run("stdio")
