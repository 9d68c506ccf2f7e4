"""The python tool: the model's code in a stateful kernel, inside a sandbox.

`sandbox = await choose_sandbox("auto", limits=SandboxLimits(memory=…))`, then `PythonTool(sandbox)`.
"""

from tools.python.sandboxes.bounds.limits import SandboxLimits
from tools.python.sandboxes.choose import choose_sandbox
from tools.python.sandboxes.folder import FileInfo, FileRefused
from tools.python.sandboxes.sandbox import Sandbox
from tools.python.session import PythonSession
from tools.python.shared import NoMemoryLeft
from tools.python.tool import PythonTool

__all__ = ["FileInfo", "FileRefused", "NoMemoryLeft", "PythonSession", "PythonTool"]
__all__ += ["Sandbox", "SandboxLimits", "choose_sandbox"]
