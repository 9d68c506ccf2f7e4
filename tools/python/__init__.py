"""The python tool: the model's code in a stateful kernel, inside a sandbox.

`sandbox = await choose_sandbox("auto", limits=Limits(memory=…))`, then `PythonTool(sandbox)`.
"""

from tools.python.outputs import OutputLimits
from tools.python.sandboxes.choose import CHOICES, choose_sandbox
from tools.python.sandboxes.folder import FileInfo, FileRefused
from tools.python.sandboxes.sandbox import Limits, Sandbox
from tools.python.session import PythonSession
from tools.python.tool import PythonTool

__all__ = [
    "CHOICES",
    "FileInfo",
    "FileRefused",
    "Limits",
    "OutputLimits",
    "PythonSession",
    "PythonTool",
    "Sandbox",
    "choose_sandbox",
]
