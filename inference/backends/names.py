"""Names of models as users write them: which words are one, and which one a wrong word probably means."""

import difflib
import re
from pathlib import Path

from inference.backends.table import EMBEDDED, PREFIXES, REFUSED
from inference.paths import REPO_ID, existing, from_hub

PUBLISHED = ("openai/gpt-oss-20b", "openai/gpt-oss-120b")
# As other programs' catalogues write them: gpt-oss:20b, gpt-oss-120b-GGUF, ggml-org/gpt-oss-20b-GGUF.
_GPT_OSS = re.compile(r"(?:[\w.-]+/)?(?:gpt[-_ ]?)?(?:oss)?[-_: ]?(20b|120b)?(?:[-_:.].*)?", re.IGNORECASE)
_BARE = re.compile(r"(?:[\w.-]+/)?gpt[-_ ]?oss(?::latest)?", re.IGNORECASE)


def names_model(word: str) -> bool:
    """Whether a word names a model, so that it can stand where a question might."""
    if not word or any(sign.isspace() for sign in word):
        return False
    if word == EMBEDDED or word.startswith((*PREFIXES, *REFUSED)) or REPO_ID.fullmatch(word):
        return True
    is_path = "/" in word or "\\" in word  # a bare word may begin a question, where a folder has its name
    if is_path and (path := existing(word)) is not None and path.is_dir():
        return True
    return word.lower().endswith(".gguf") or _published(word) is not None


def meant_by(word: str) -> str | None:
    """The name that a wrong word probably means."""
    word = word.strip()
    if repo := from_hub(word):
        return repo
    if (published := _published(word)) is not None:
        return published
    kind, colon, rest = word.partition(":")
    if prefix := difflib.get_close_matches(kind + colon, PREFIXES, 1, 0.75) if colon else ():
        return prefix[0] + rest
    close = difflib.get_close_matches(word, [EMBEDDED, *PUBLISHED], 1, 0.75)
    bare = [name.partition("/")[2] for name in PUBLISHED]
    close = close or difflib.get_close_matches(word.lower(), bare, 1, 0.75)
    if close:
        return _published(close[0]) or close[0]
    return _neighbour(word)


def _published(word: str) -> str | None:
    """The published checkpoint that a word names in another spelling. Other people's checkpoints stay."""
    owner, slash, _ = word.lower().rpartition("/")
    if slash and owner != "openai" and "gguf" not in word.lower():
        return None
    if _BARE.fullmatch(word):
        return PUBLISHED[0]
    spelling = _GPT_OSS.fullmatch(word)
    return f"openai/gpt-oss-{spelling[1].lower()}" if spelling and spelling[1] else None


def _neighbour(word: str) -> str | None:
    """A folder next to the one that is missing, with a similar name."""
    try:
        path = Path(word)
        folders = [p.name for p in path.parent.iterdir() if p.is_dir()] if len(path.parts) > 1 else []
    except (OSError, ValueError):
        return None
    close = difflib.get_close_matches(path.name, folders, 1, 0.75)
    return str(path.with_name(close[0])) if close else None
