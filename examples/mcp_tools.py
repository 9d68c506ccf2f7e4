"""Tools of an MCP server: the model calls them within the response, after approval.

Start the server with: gpt-oss-server serve --mcp units="python examples/mcp_server.py"
"""

import sys

import tour
from openai import BadRequestError

client = tour.client()

# Name a server that the operator did not configure by its `server_url`, plus `authorization` if it needs one.
TOOLS = [{"type": "mcp", "server_label": "units", "require_approval": "always"}]

try:
    response = client.responses.create(input="How many nautical miles are 44 kilometres?", tools=TOOLS)
except BadRequestError as error:
    sys.exit(f"{error.body['message']} The first lines of this program have the command.")

for _ in range(5):
    approvals = []
    for item in response.output:
        if item.type == "mcp_list_tools":
            print("Offered:", ", ".join(tool.name for tool in item.tools))
        elif item.type == "mcp_call":
            print(f"Called: {item.server_label}.{item.name}({item.arguments}) -> {item.output or item.error}")
        elif item.type == "mcp_approval_request":
            print(f"Approved: {item.name}({item.arguments})")
            approvals.append(
                {"type": "mcp_approval_response", "approval_request_id": item.id, "approve": True}
            )
    if not approvals or response.status != "completed":
        break  # a response that was cut off cannot be approved
    response = client.responses.create(input=approvals, tools=TOOLS, previous_response_id=response.id)

print("Answer:", response.output_text)
