"""A small MCP server, for mcp_tools.py: it converts lengths."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("units", instructions="Converts lengths between units.")
METRES = {"metre": 1.0, "foot": 0.3048, "mile": 1609.344, "nautical mile": 1852.0}


@server.tool()
def convert(amount: float, from_unit: str, to_unit: str) -> str:
    """Convert a length. Units: metre, foot, mile, nautical mile."""
    return f"{amount * METRES[from_unit] / METRES[to_unit]:.4g} {to_unit}"


if __name__ == "__main__":
    server.run("stdio")
