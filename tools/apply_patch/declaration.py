"""The tool's declaration for the model, and reading the patch from the arguments of a call."""

import json
from typing import Any

from tools.apply_patch.parse import BEGIN, END, PatchError

NAME = "apply_patch"

_DESCRIPTION = """\
Changes files under the current folder by a patch. The user sees the changes as a diff and may refuse them. \
The whole argument is the patch, in this form:

*** Begin Patch
*** Add File: path/new.txt
+every line of a new file begins with +
*** Update File: path/old.py
@@ def function_that_holds_the_change():
 an unchanged line begins with a space
-a line that goes begins with -
+a line that comes begins with +
 about 3 unchanged lines stand before and after each change, exactly as in the file
*** Delete File: path/unwanted.txt
*** End Patch

After `*** Update File`, a line `*** Move to: path` renames the file. Each further change in a file begins \
with `@@`, in the order of the file; a line after it, such as that of a class or function, says where to \
look; `*** End of File` ends a change at the end of the file. There are no line numbers. Paths are \
relative."""

# A string instead of an object, as the tool was declared when the model was trained.
DECLARATION: dict[str, Any] = {
    "type": "function",
    "name": NAME,
    "description": _DESCRIPTION,
    "parameters": {"type": "string", "description": "The patch."},
}


def read_patch(arguments: str) -> str:
    """The patch in the arguments: bare, as a JSON string, or as the only text in an object."""
    bare = arguments.strip()
    if not bare.startswith(("{", '"')):
        return bare
    try:
        value = json.loads(bare, strict=False)  # line breaks inside the string are a harmless slip
    except (ValueError, RecursionError) as error:
        wrong = f"The argument is neither a patch nor JSON that holds one ({error})"
        raise PatchError(f"{wrong}. Send the bare patch, from {BEGIN!r} to {END!r}.") from error
    texts = [value] if isinstance(value, str) else [v for v in value.values() if isinstance(v, str)]
    if len(texts) != 1:
        raise PatchError(f"The argument must be one patch, from {BEGIN!r} to {END!r}.")
    return texts[0].strip()
