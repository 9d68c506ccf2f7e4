"""Dice that the model rolls: a hosted tool from outside, without a change of the server.

Requests declare it with {"type": "dice"} and, if they wish, the number of `sides`. Its calls are `mcp_call`
items; docs/extending.md shows a tool whose calls have items of their own.
"""

from random import randint

from gpt_oss_server.items.hosted import Field, HostedTool, Maker
from gpt_oss_server.settings import Settings
from tools.tool import Declaration, Function, Session, ToolCall, ToolOutput
from tools.toolbox import Offer

SIDES = 6


class DiceTool:
    declaration = Declaration("dice", "A fair die.", (Function("roll", "Rolls the die once."),))

    def open(self) -> Session:
        return self  # it keeps nothing between calls, so all conversations share it

    async def run(self, call: ToolCall) -> ToolOutput:
        return ToolOutput(str(randint(1, max(1, call.options.get("sides", SIDES)))))

    async def close(self) -> None: ...


class Dice(HostedTool):
    namespace = "dice"  # the model calls dice.roll
    types = ("dice",)
    fields = (Field("sides", int, "an integer"),)

    def maker(self, settings: Settings) -> Maker:
        async def make() -> Offer:
            return Offer(DiceTool())

        return make
