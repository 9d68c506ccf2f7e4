"""The container of a tool server (`--tool-server`), which gpt-oss was trained to use beside its other tools.

No request names it, and this server runs none of its own: where a tool server has one, it joins the other
hosted tools.
"""

from __future__ import annotations

from gpt_oss_server.hosted.tool import HostedTool


class Container(HostedTool):
    namespace = "container"
    in_system_message = True
    joins_others = True
