"""Names of text encodings, from outside, to Python's codecs: only to those that are plain text encodings.
Pure.
"""

import codecs
from typing import Final

# A label on a page often means the larger encoding of the same family.
_MEANT: Final = {
    "ascii": "cp1252", "iso8859_1": "cp1252", "iso8859_9": "cp1254", "tis_620": "cp874",
    "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs",
}  # fmt: skip
# Codecs that Python counts as text but that no page uses as a charset.
_NO_CHARSET: Final = {"idna", "punycode", "undefined", "utf_7", "mbcs", "oem"}
_LONGEST: Final = 40  # characters of a label: Python keeps in memory all that it does not know
_ESCAPES: Final = {"unicode_escape", "raw_unicode_escape"}


def find_codec(label: str) -> str | None:
    """The codec for a label; None if it is not a plain text encoding."""
    if len(label) > _LONGEST:
        return None
    try:
        b"x".decode(label, "replace")  # LookupError for codecs that do not make text
    except (LookupError, ValueError):  # the latter of a label with a NUL
        return None
    name = codecs.lookup(label).name.replace("-", "_")
    return None if name in _NO_CHARSET | _ESCAPES else _MEANT.get(name, name)
