"""A hook of MkDocs: pages link to files of the repository, and the site carries those files.

Takes the pages as they are in the repository, where `../examples/demo.py` is a link that works. Returns them
with links to copies below `source/`. A link to a file that does not exist stays, and fails the build.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
COPIES = "source"
_LINK = re.compile(r"(?<=\]\()(?P<path>(?:\.\./)+[^)#\s]+)(?P<place>#[^)]*)?(?=\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    found: set[str] = set()
    for file in files.documentation_pages():
        text = (Path(config.docs_dir) / file.src_uri).read_text(encoding="utf-8")
        found.update(filter(None, (_outside(file.src_uri, match["path"]) for match in _LINK.finditer(text))))
    for path in sorted(found):
        if (ROOT / path).is_file():
            content = (ROOT / path).read_text(encoding="utf-8")
            # A page of the site would need its links mended too, so a linked page is shown as text.
            files.append(File.generated(config, _copy(path), content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    def moved(match: re.Match[str]) -> str:
        outside = _outside(page.file.src_uri, match["path"])
        copied = None if outside is None else files.get_file_from_path(_copy(outside))
        if copied is None:
            return match[0]
        return relpath(copied.src_uri, dirname(page.file.src_uri) or ".")

    return _LINK.sub(moved, markdown)


def _outside(page: str, link: str) -> str | None:
    """The path of a linked file in the repository; None if it is one of the pages."""
    path = normpath(f"docs/{dirname(page)}/{link}")
    return None if path.startswith(("docs/", "..")) else path


def _copy(path: str) -> str:
    return f"{COPIES}/{path}.txt" if path.endswith(".md") else f"{COPIES}/{path}"
