"""The container of a tool server (`--tool-server`), one of the tools that gpt-oss was trained to use.

No request names it, and this server has none itself. Where a tool server offers one, it joins the other
hosted tools.
"""

from __future__ import annotations

from gpt_oss_server.items.kind import HostedTool


class ContainerTool(HostedTool):
    namespace = "container"
    in_system_message = True
    joins_others = True
